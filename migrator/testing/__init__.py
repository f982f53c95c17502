"""The test-kit: what tries the tool, and moves no data itself.

``servers``: real MongoDB and PostgreSQL servers without root. ``demo``: documents of a scheduler, and the faults among
them. ``memory``: the reference of a store, in memory. ``mutations``: the corruptions that a verification must see.
``sources``: the tests of a source, made from its documents. The tool reaches them from ``migrator demo``, ``migrator
servers`` and the area sensitivity of ``migrator verify`` alone; an import contract says so.
"""
