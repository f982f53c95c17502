"""A stored result as something a person reads and signs; nothing here looks at a database."""
