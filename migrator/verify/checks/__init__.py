"""The checks: one file per area, each check as data."""
