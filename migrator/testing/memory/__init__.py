"""The store in memory: the reference with which the contract tests compare MongoDB and PostgreSQL."""
