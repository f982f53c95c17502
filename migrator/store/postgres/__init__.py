"""The target: PostgreSQL."""
