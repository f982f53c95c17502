"""Corruptions of data, of the schema and of the scheduler's behaviour, each with the checks that must see it."""
