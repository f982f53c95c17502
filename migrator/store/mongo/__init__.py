"""The MongoDB side."""
