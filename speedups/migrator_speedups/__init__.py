"""The native codec of ``migrator``: what its Python codec does, for plain documents, over their bytes.

Nothing here is imported but by ``migrator.native``. The Python codec is the definition: a document about which there is
any doubt is handed to it.
"""

__version__ = "0.1.0"
