"""Databases for the tests of an application, by backend; each module imports the driver of its own database alone."""
