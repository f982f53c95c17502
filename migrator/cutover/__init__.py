"""The cutover from MongoDB to PostgreSQL, and the rollback."""
