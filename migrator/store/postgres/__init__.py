"""A scheduler's data in PostgreSQL."""
