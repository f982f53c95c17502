"""A scheduler's data in MongoDB."""
