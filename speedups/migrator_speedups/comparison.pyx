"""Expected rows compared with stored rows, byte by byte, as binary COPY gives both; no Python object for each row."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

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
    size_t start
    size_t size
    int32_t document
    bint is_stored


cdef class Comparison:
    """The expected rows of one table, and which of them were stored byte for byte."""

    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Row* rows
    cdef readonly Py_ssize_t count
    """Expected rows."""
    cdef int32_t* slots  # open addressing, by the id; -1: free
    cdef size_t mask
    cdef size_t id_size

    def __cinit__(self, rows, documents):
        cdef Py_ssize_t i
        cdef size_t slot, slots = 4
        self.count = len(documents)
        PyObject_GetBuffer(rows, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t*> self.view.buf
        while slots < <size_t> self.count * 2:
            slots *= 2
        self.mask = slots - 1
        self.rows = <Row*> PyMem_Calloc(self.count + 1, sizeof(Row))
        self.slots = <int32_t*> PyMem_Malloc(slots * sizeof(int32_t))
        if self.rows == NULL or self.slots == NULL:
            raise MemoryError
        for slot in range(slots):
            self.slots[slot] = -1
        self._find_rows()
        for i in range(self.count):
            self.rows[i].document = documents[i]
            slot = self._slot_of(self.data + self.rows[i].start + ID_AT)
            while self.slots[slot] >= 0:
                slot = (slot + 1) & self.mask
            self.slots[slot] = <int32_t> i

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.slots)
        PyBuffer_Release(&self.view)

    cdef int _find_rows(self) except -1:
        """Find where each row begins, by the lengths of its fields."""
        cdef Py_ssize_t i
        cdef size_t place = 0, end = self.view.len, left
        cdef uint32_t length
        cdef int fields
        for i in range(self.count):
            self.rows[i].start = place
            if end - place < ID_AT:
                raise ValueError(f"row {i} at byte {place}: expected a row of binary COPY")
            fields = (self.data[place] << 8) | self.data[place + 1]
            length = big32(self.data + place + COUNT_SIZE)
            if i == 0:
                self.id_size = length
            if length != self.id_size or (length != UUID_SIZE and length != BIGINT_SIZE):
                raise ValueError(f"row {i} at byte {place}: expected an id of 8 or 16 bytes, the same for all rows")
            place += COUNT_SIZE
            while fields > 0:
                fields -= 1
                left = end - place
                length = big32(self.data + place) if left >= LENGTH_SIZE else 0
                if length == 0xFFFFFFFF:  # null
                    length = 0
                if left < LENGTH_SIZE or left - LENGTH_SIZE < length:
                    raise ValueError(f"row {i} at byte {self.rows[i].start}: ends within a field")
                place += LENGTH_SIZE + length
            self.rows[i].size = place - self.rows[i].start
        if place != end:
            raise ValueError(f"byte {place}: expected {self.count} rows, and no more")
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
                int.from_bytes((<const char*> self.data + self.rows[i].start + ID_AT)[:BIGINT_SIZE], "big", signed=True)
                for i in range(self.count)
            ]
            return "{" + ",".join(map(str, numbers)) + "}", "bigint"
        made = bytearray(2 + self.count * (2 * UUID_SIZE + 1))
        text = made
        text[0] = c"{"
        for i in range(self.count):
            id = self.data + self.rows[i].start + ID_AT
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
            if expected.size == size and memcmp(self.data + expected.start, row, size) == 0:
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
