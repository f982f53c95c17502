"""The parity check: does PostgreSQL hold what MongoDB holds, by the round trip of every document and by aggregates."""
