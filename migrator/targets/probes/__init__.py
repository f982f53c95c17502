"""Scripts that ask a library what it finds in its store, and let it work there.

A script runs in an interpreter that has the library, which need not be the tool's: it imports nothing of ``migrator``
and nothing that is not in the standard library or comes with the library. ``dialogue`` says what is read and printed.
"""
