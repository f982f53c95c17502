"""Rows of binary COPY split into the rows of two tables: each takes some fields of a row; no Python object for a row.

One field of the second table may be shared: a value that comes again stands there once, under an id made of its bytes.
"""

from hashlib import sha256

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "math.h" nogil:
    bint isinf(double)

cdef enum:
    COUNT_SIZE = 2  # the number of fields, before the first of them
    LENGTH_SIZE = 4  # the length of a field, before its bytes
    DOUBLE_SIZE = 8
    REAL_SIZE = 4
    NOTHING = 0xFFFFFFFF  # length of a null
    MOST_FIELDS = 1600  # of a table of PostgreSQL
    ID_SIZE = 16  # of a shared value
    LEAST_SHARED = 64  # bytes of a value: a shorter one takes hardly more than its id
    MOST_SHARED = 8192  # bytes of a value, so that those that are known take little memory
    MOST_KNOWN = 256  # shared values
    SEEN = 4096  # hashes of values that came once; a power of two


cdef inline uint32_t big32(const uint8_t* place) noexcept:
    return (<uint32_t> place[0] << 24) | (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]


cdef inline void put32(uint8_t* place, uint32_t value) noexcept:
    place[0] = value >> 24
    place[1] = (value >> 16) & 255
    place[2] = (value >> 8) & 255
    place[3] = value & 255


cdef class _Sharing:
    """The values of one field that came before: which of them are shared, and by what id."""

    cdef dict known
    cdef list fresh
    cdef bytes last
    cdef bytes last_id
    cdef Py_hash_t seen[SEEN]

    def __cinit__(self):
        cdef int i
        self.known, self.fresh = {}, []
        self.last = self.last_id = None
        for i in range(SEEN):
            self.seen[i] = 0

    cdef bytes find(self, const uint8_t* value, uint32_t length):
        """Return the id of a value that is shared; None: it stands in its row, as one does that comes for the first time."""
        cdef bytes key, made
        cdef Py_hash_t hashed
        if not LEAST_SHARED <= length <= MOST_SHARED:
            return None
        if (
            self.last is not None
            and PyBytes_GET_SIZE(self.last) == length
            and memcmp(PyBytes_AS_STRING(self.last), value, length) == 0
        ):
            return self.last_id
        key = PyBytes_FromStringAndSize(<const char*> value, length)
        made = self.known.get(key)
        if made is None:
            hashed = hash(key)
            if self.seen[hashed & (SEEN - 1)] != hashed or len(self.known) >= MOST_KNOWN:
                self.seen[hashed & (SEEN - 1)] = hashed
                return None
            made = sha256(key).digest()[:ID_SIZE]
            self.known[key] = made
            self.fresh.append((made, key))
        self.last, self.last_id = key, made
        return made


cdef class _Part:
    """The fields that one table takes, in the order of its columns; then the id of the field that is shared, if one is."""

    cdef int count
    cdef int shared
    cdef _Sharing sharing
    cdef int places[MOST_FIELDS]
    cdef bint narrowed[MOST_FIELDS]
    cdef bytes made
    cdef uint8_t* end

    def __cinit__(self, fields, int available, int shared=-1):
        cdef int place
        if len({place for place, _ in fields}) != len(fields) or not 0 < len(fields) <= MOST_FIELDS:
            raise ValueError("expected each field once at most, and at least one")
        if shared >= 0 and (shared, False) not in [(place, bool(narrowed)) for place, narrowed in fields]:
            raise ValueError(f"field {shared}: not one of the table that may share it")
        self.shared, self.sharing = shared, _Sharing() if shared >= 0 else None
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
        cdef int columns = self.count + (self.shared >= 0)
        cdef uint32_t length
        cdef const uint8_t* field
        cdef bytes shared_id = None
        if self.shared >= 0 and big32(fields[self.shared]) != NOTHING:
            shared_id = self.sharing.find(fields[self.shared] + LENGTH_SIZE, big32(fields[self.shared]))
        self.end[0] = columns >> 8
        self.end[1] = columns & 255
        self.end += COUNT_SIZE
        for i in range(self.count):
            field = fields[self.places[i]]
            length = big32(field)
            if length == NOTHING or (shared_id is not None and self.places[i] == self.shared):
                put32(self.end, NOTHING)
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
        if shared_id is not None:
            put32(self.end, ID_SIZE)
            memcpy(self.end + LENGTH_SIZE, PyBytes_AS_STRING(shared_id), ID_SIZE)
            self.end += LENGTH_SIZE + ID_SIZE
        elif self.shared >= 0:
            put32(self.end, NOTHING)
            self.end += LENGTH_SIZE
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
    """Which fields of a row each of two tables takes; ``shared``: the field of the second that may be shared, -1: none."""

    cdef int fields
    cdef _Part first
    cdef _Part second

    def __cinit__(self, int fields, first, second, int shared=-1):
        if not 0 < fields <= MOST_FIELDS:
            raise ValueError(f"{fields} fields: expected 1 to {MOST_FIELDS}")
        self.fields = fields
        self.first = _Part(first, fields)
        self.second = _Part(second, fields, shared)

    def take_shared(self):
        """Return the shared values that rows of ``split`` name for the first time, as ids and bytes; each once."""
        if self.second.sharing is None:
            return []
        made = self.second.sharing.fresh
        self.second.sharing.fresh = []
        return made

    def split(self, rows, bytes header):
        """Return the rows of both tables, each as a whole binary COPY that begins with ``header``."""
        cdef Py_buffer view
        cdef const uint8_t* place
        cdef const uint8_t* end
        cdef const uint8_t** found
        cdef uint32_t length
        cdef int i
        cdef Py_ssize_t rows_at_most
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        found = <const uint8_t**> PyMem_Malloc(self.fields * sizeof(uint8_t*))
        try:
            if found == NULL:
                raise MemoryError
            self.first.begin(header, view.len)
            # a row has a length for each field at least, and gets an id
            rows_at_most = view.len // (COUNT_SIZE + LENGTH_SIZE * self.fields) + 1
            self.second.begin(header, view.len + rows_at_most * (LENGTH_SIZE + ID_SIZE))
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
