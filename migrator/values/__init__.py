"""BSON, Python and PostgreSQL values; the only place that decides equality."""
