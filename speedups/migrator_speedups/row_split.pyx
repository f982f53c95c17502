"""Rows of binary COPY split into the rows of two tables: each takes some fields of a row; no Python object for a row."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "math.h" nogil:
    bint isinf(double)

cdef enum:
    COUNT_SIZE = 2  # the number of fields, before the first of them
    LENGTH_SIZE = 4  # the length of a field, before its bytes
    DOUBLE_SIZE = 8
    REAL_SIZE = 4
    NOTHING = 0xFFFFFFFF  # length of a null
    MOST_FIELDS = 1600  # of a table of PostgreSQL


cdef inline uint32_t big32(const uint8_t* place) noexcept:
    return (<uint32_t> place[0] << 24) | (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]


cdef inline void put32(uint8_t* place, uint32_t value) noexcept:
    place[0] = value >> 24
    place[1] = (value >> 16) & 255
    place[2] = (value >> 8) & 255
    place[3] = value & 255


cdef class _Part:
    """The fields that one table takes, in the order of its columns."""

    cdef int count
    cdef int places[MOST_FIELDS]
    cdef bint narrowed[MOST_FIELDS]
    cdef bytes made
    cdef uint8_t* end

    def __cinit__(self, fields, int available):
        cdef int place
        if len({place for place, _ in fields}) != len(fields) or not 0 < len(fields) <= MOST_FIELDS:
            raise ValueError("expected each field once at most, and at least one")
        self.count = 0
        for place, narrowed in fields:
            if not 0 <= place < available:
                raise ValueError(f"field {place}: a row has {available}")
            self.places[self.count] = place
            self.narrowed[self.count] = narrowed
            self.count += 1

    cdef void begin(self, bytes header, Py_ssize_t most):
        """Make room for rows of at most so many bytes, and for what stands before and after them."""
        self.made = PyBytes_FromStringAndSize(NULL, len(header) + most + COUNT_SIZE)
        self.end = <uint8_t*> PyBytes_AS_STRING(self.made)
        memcpy(self.end, PyBytes_AS_STRING(header), len(header))
        self.end += len(header)

    cdef int add(self, const uint8_t** fields) except -1:
        """Add a row; ``fields``: where each field of it begins, with its length."""
        cdef int i
        cdef uint32_t length
        cdef const uint8_t* field
        self.end[0] = self.count >> 8
        self.end[1] = self.count & 255
        self.end += COUNT_SIZE
        for i in range(self.count):
            field = fields[self.places[i]]
            length = big32(field)
            if length == NOTHING:
                memcpy(self.end, field, LENGTH_SIZE)
                self.end += LENGTH_SIZE
            elif self.narrowed[i]:
                if length != DOUBLE_SIZE:
                    raise ValueError(f"field {self.places[i]}: expected a number of {DOUBLE_SIZE} bytes")
                put32(self.end, REAL_SIZE)
                put32(self.end + LENGTH_SIZE, narrow(field + LENGTH_SIZE))
                self.end += LENGTH_SIZE + REAL_SIZE
            else:
                memcpy(self.end, field, LENGTH_SIZE + length)
                self.end += LENGTH_SIZE + length
        return 0

    cdef bytes finish(self):
        """Return the rows, with the trailer."""
        cdef bytes made = self.made
        self.end[0] = self.end[1] = 255
        self.end += COUNT_SIZE
        self.made = None
        return made[: self.end - <uint8_t*> PyBytes_AS_STRING(made)]


cdef uint32_t narrow(const uint8_t* place) except? 0:
    """Return the bits of a number of 64 bits as one of 32; raise ``OverflowError`` where PostgreSQL raises an error."""
    cdef uint64_t bits = (<uint64_t> big32(place) << 32) | big32(place + REAL_SIZE)
    cdef double value
    cdef float narrower
    cdef uint32_t made
    memcpy(&value, &bits, DOUBLE_SIZE)
    narrower = <float> value
    if (isinf(narrower) and not isinf(value)) or (narrower == 0 and value != 0):
        raise OverflowError
    memcpy(&made, &narrower, REAL_SIZE)
    return made


cdef class RowSplit:
    """Which fields of a row each of two tables takes."""

    cdef int fields
    cdef _Part first
    cdef _Part second

    def __cinit__(self, int fields, first, second):
        if not 0 < fields <= MOST_FIELDS:
            raise ValueError(f"{fields} fields: expected 1 to {MOST_FIELDS}")
        self.fields = fields
        self.first = _Part(first, fields)
        self.second = _Part(second, fields)

    def split(self, rows, bytes header):
        """Return the rows of both tables, each as a whole binary COPY that begins with ``header``."""
        cdef Py_buffer view
        cdef const uint8_t* place
        cdef const uint8_t* end
        cdef const uint8_t** found
        cdef uint32_t length
        cdef int i
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        found = <const uint8_t**> PyMem_Malloc(self.fields * sizeof(uint8_t*))
        try:
            if found == NULL:
                raise MemoryError
            self.first.begin(header, view.len)
            self.second.begin(header, view.len)
            place = <const uint8_t*> view.buf
            end = place + view.len
            while place < end:
                if end - place < COUNT_SIZE or (place[0] << 8 | place[1]) != self.fields:
                    raise ValueError(f"byte {place - <const uint8_t*> view.buf}: expected a row of {self.fields} fields")
                place += COUNT_SIZE
                for i in range(self.fields):
                    found[i] = place
                    if end - place < LENGTH_SIZE:
                        raise ValueError(f"byte {place - <const uint8_t*> view.buf}: the row ends within a field")
                    length = big32(place)
                    place += LENGTH_SIZE
                    if length != NOTHING:
                        if end - place < length:
                            raise ValueError(f"byte {place - <const uint8_t*> view.buf}: the row ends within a field")
                        place += length
                self.first.add(found)
                self.second.add(found)
            return self.first.finish(), self.second.finish()
        finally:
            PyMem_Free(found)
            PyBuffer_Release(&view)
