"""Does PostgreSQL hold what MongoDB holds: the round trip of every document, and an opinion independent of it."""
