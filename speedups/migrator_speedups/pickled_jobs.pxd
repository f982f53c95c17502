"""The jobs of APScheduler 3 as pickles: the C interface for the row codec."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from migrator_speedups.json_text cimport Buffer

cdef enum:
    MOST_HOLES = 256


cdef struct Hole:
    size_t start  # of the opcode
    size_t stop
    uint8_t role
    bint live
    const uint8_t* text
    size_t size
    int64_t number  # of a reference: the hole that it refers to

cdef struct Value:
    size_t start  # of its first opcode
    int first  # the hole that would be its first
    int hole  # -1: it is none itself
    const uint8_t* text  # NULL: it is no text
    size_t size


@cython.final
cdef class PickledJobs:
    """Knows what pickles say that differ in their holes alone. Not to be used by two threads at a time."""

    cdef object learn, offset
    cdef dict known, offsets
    cdef set once
    cdef Py_ssize_t refused, learned
    cdef Buffer key
    cdef Hole holes[MOST_HOLES]
    cdef int count
    # of the pickle that was read:
    cdef readonly tuple cells  # of each column of all tables; None: null, or filled otherwise
    cdef const uint8_t* name  # NULL: it is among the cells
    cdef size_t name_size
    cdef int moment_column  # -1: none of a trigger's times is a hole
    cdef int64_t moment  # microseconds since 1970
    cdef tuple specification  # the cell of the trigger's before and after the moment

    # Read a pickle. Return 0 for one that the Python codec must read.
    # id: the document's, a text. due: microseconds since 1970; has_due: whether the document says one.
    # payload: where the payload's cell is appended.
    cdef int read(
        self,
        const uint8_t* data,
        size_t size,
        const uint8_t* id,
        size_t id_size,
        bint has_due,
        int64_t due,
        Buffer payload,
    ) except -1
    cdef int _fill(self, Hole* hole, Buffer payload) except -1
    cdef object _entry(self, const uint8_t* data, size_t size, const uint8_t* id, size_t id_size, due)
    cdef bint _instant(self, const uint8_t* packed, zone, int64_t* instant) except *
    cdef int _make_key(self, const uint8_t* data, size_t size) except -1
    cdef int _hole(
        self, size_t start, size_t stop, uint8_t role, const uint8_t* text, size_t size, int64_t number
    ) noexcept
    cdef int _find_holes(self, const uint8_t* data, size_t size) except -1
    cdef int _close(self, int first, int stop) noexcept
    cdef int _assign(self, Value* stack, int base, int depth) except -1
    cdef int _drop(self, int first, int stop) noexcept


# Append the cell of a job's metadata, which is the pickle in base64.
cdef int write_metadata(Buffer out, const uint8_t* data, size_t size) except -1

# Append the pickle that a cell of metadata holds. Return 0 for one of another form.
cdef int read_metadata(Buffer out, const uint8_t* cell, size_t size) except -1
