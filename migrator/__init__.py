"""Move a scheduler from MongoDB to PostgreSQL, and prove it."""

__version__ = "0.1.0"
