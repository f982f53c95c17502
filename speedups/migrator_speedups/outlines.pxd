"""Documents that differ in a few values: the C interface for the rows."""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from migrator_speedups.json_text cimport Buffer

cdef enum:
    MOST_HOLES = 16

cdef struct Hole:
    const uint8_t* name
    size_t name_size  # with the zero byte
    int role
    # of the document that is read:
    bint seen
    uint8_t kind
    const uint8_t* value
    size_t size
    int64_t milliseconds  # of a time, since 1970


@cython.final
cdef class Outlines:
    """What documents have in common, by their outlines. Not to be used by two threads at a time."""

    cdef object learn
    cdef list kept
    cdef Hole holes[MOST_HOLES]
    cdef int count
    cdef size_t longest
    cdef dict known, older
    cdef Py_ssize_t asked, used
    cdef Buffer key
    cdef tuple answer  # about the outline of the document that is read

    # Find the holes of a document, and the answer about its outline. Return 0 if it is for the Python codec.
    # members: the bytes of the document after its _id.
    cdef int read(self, const uint8_t* raw, size_t size, const uint8_t* members) except -1
    cdef int _find_holes(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int _named(self, const uint8_t* name, size_t room) noexcept
    cdef object _known(self, bytes key)
    cdef int _remember(self, bytes key, found) except -1
