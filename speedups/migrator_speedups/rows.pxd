"""Rows of binary COPY that were made of plain documents: the C interface for the comparison."""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from migrator_speedups.json_text cimport Buffer


@cython.final
cdef class TableRows:
    """The rows of one table, one after the other, in the order of their documents."""

    cdef Buffer data
    cdef Buffer starts  # size_t each: where a row begins in ``data``
    cdef Buffer documents  # int32_t each: position of the row's document in the batch
    cdef readonly Py_ssize_t count

    # The row at ``index``: its first byte, and its size through ``size``. Its id, 16 bytes, begins at its byte 6.
    cdef const uint8_t* row(self, Py_ssize_t index, size_t* size) noexcept
    cdef int32_t document_of(self, Py_ssize_t index) noexcept
    cdef int begin(self, int32_t document) except -1
    cdef int undo(self) except -1
    cdef int drop(self, set documents) except -1


@cython.final
cdef class Rows:
    """What the plain documents of a batch became, and which documents are for the Python codec."""

    cdef readonly bytes batch
    cdef readonly Py_ssize_t documents
    cdef readonly list handed
    cdef readonly list unknown
    cdef readonly list remainders
    cdef Buffer offsets  # size_t each: where a document begins in ``batch``; one more for the end
    cdef readonly tuple tables
    cdef list waiting

    cdef TableRows table(self, Py_ssize_t index)
