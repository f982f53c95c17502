"""The switch from MongoDB to PostgreSQL, and the way back."""
