"""Expected rows compared with stored rows, byte by byte, as binary COPY gives both; no Python object for each row."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from migrator_speedups.rows cimport TableRows

cdef enum:
    COUNT_SIZE = 2  # the number of fields, before the first of them
    LENGTH_SIZE = 4  # the length of a field, before its bytes
    ID_AT = COUNT_SIZE + LENGTH_SIZE
    UUID_SIZE = 16
    BIGINT_SIZE = 8
    HASHED = 8  # last bytes of an id that are hashed: those of a UUID are the same for no many rows

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: spreads what differs in any bits
cdef const char* DIGITS = b"0123456789abcdef"


cdef inline uint32_t big32(const uint8_t* place) noexcept:
    return (<uint32_t> place[0] << 24) | (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]


cdef struct Row:
    const uint8_t* bytes
    size_t size
    int32_t document
    bint is_stored


cdef class Comparison:
    """The expected rows of one table, and which of them were stored byte for byte."""

    cdef TableRows table
    cdef tuple more
    cdef Row* rows
    cdef readonly Py_ssize_t count
    """Expected rows."""
    cdef int32_t* slots  # open addressing, by the id; -1: free
    cdef size_t mask
    cdef size_t id_size

    def __cinit__(self, TableRows table not None, more, documents):
        """``more``: rows behind those of the table, whose bytes are not copied. ``documents``: that of each row."""
        cdef Py_ssize_t i
        cdef size_t slot, slots = 4
        self.table, self.more = table, tuple(more)
        self.count = table.count + len(self.more)
        if len(documents) != self.count:
            raise ValueError(f"expected the documents of {self.count} rows, and no more")
        while slots < <size_t> self.count * 2:
            slots *= 2
        self.mask = slots - 1
        self.rows = <Row*> PyMem_Calloc(self.count + 1, sizeof(Row))
        self.slots = <int32_t*> PyMem_Malloc(slots * sizeof(int32_t))
        if self.rows == NULL or self.slots == NULL:
            raise MemoryError
        for slot in range(slots):
            self.slots[slot] = -1
        for i in range(self.count):
            self._find_row(i)
            self.rows[i].document = documents[i]
            slot = self._slot_of(self.rows[i].bytes + ID_AT)
            while self.slots[slot] >= 0:
                slot = (slot + 1) & self.mask
            self.slots[slot] = <int32_t> i

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.slots)

    cdef int _find_row(self, Py_ssize_t i) except -1:
        """Note where a row begins, and its size. All have an id of one size."""
        cdef Row* row = &self.rows[i]
        cdef uint32_t length = 0
        cdef bytes one
        if i < self.table.count:
            row.bytes = self.table.row(i, &row.size)
        else:
            one = self.more[i - self.table.count]
            row.bytes, row.size = <const uint8_t*> PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one)
        if row.size >= ID_AT:
            length = big32(row.bytes + COUNT_SIZE)
        if i == 0:
            self.id_size = length
        if length != self.id_size or (length != UUID_SIZE and length != BIGINT_SIZE) or row.size < ID_AT + length:
            raise ValueError(f"row {i}: expected an id of 8 or 16 bytes, the same for all rows")
        return 0

    cdef inline size_t _slot_of(self, const uint8_t* id) noexcept:
        cdef uint64_t found
        memcpy(&found, id + self.id_size - HASHED, HASHED)
        return (found * GOLDEN >> 32) & self.mask

    def ids(self):
        """Return the ids of the rows as the text of an array, and the type of its elements."""
        cdef Py_ssize_t i, k
        cdef size_t place = 1
        cdef const uint8_t* id
        cdef bytearray made
        cdef char* text
        if self.id_size == BIGINT_SIZE:
            numbers = [
                int.from_bytes((<const char*> self.rows[i].bytes + ID_AT)[:BIGINT_SIZE], "big", signed=True)
                for i in range(self.count)
            ]
            return "{" + ",".join(map(str, numbers)) + "}", "bigint"
        made = bytearray(2 + self.count * (2 * UUID_SIZE + 1))
        text = made
        text[0] = c"{"
        for i in range(self.count):
            id = self.rows[i].bytes + ID_AT
            if i:
                text[place] = c","
                place += 1
            for k in range(UUID_SIZE):
                text[place] = DIGITS[id[k] >> 4]
                text[place + 1] = DIGITS[id[k] & 15]
                place += 2
        text[place] = c"}"
        return made[: place + 1].decode("ascii"), "uuid"

    def read(self, stored):
        """Compare rows with the expected ones as they come; what is no row with one of the ids is passed over."""
        cdef Py_buffer view
        for row in stored:
            PyObject_GetBuffer(row, &view, PyBUF_SIMPLE)
            try:
                self._compare(<const uint8_t*> view.buf, view.len)
            finally:
                PyBuffer_Release(&view)

    cdef int _compare(self, const uint8_t* row, size_t size) except -1:
        """Note which expected rows a stored one equals. Several documents may have computed the same id."""
        cdef size_t slot
        cdef Row* expected
        if size < ID_AT + self.id_size or big32(row + COUNT_SIZE) != self.id_size:
            return 0
        slot = self._slot_of(row + ID_AT)
        while self.slots[slot] >= 0:
            expected = &self.rows[self.slots[slot]]
            if expected.size == size and memcmp(expected.bytes, row, size) == 0:
                expected.is_stored = True
            slot = (slot + 1) & self.mask
        return 0

    def unequal(self):
        """Return the documents of rows that were not among the stored ones, once each, in the order of the rows."""
        cdef Py_ssize_t i
        found = {}
        for i in range(self.count):
            if not self.rows[i].is_stored:
                found[self.rows[i].document] = None
        return list(found)
