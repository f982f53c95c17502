"""Fields at the top of documents, counted: their values, those that are dates, and those that are texts of one form.

The parity check asks it about the documents that it reads. It knows no plan, and decodes no value.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset

from migrator_speedups.bson_values cimport DATE, NULL_VALUE, TEXT, little32, value_size

cdef enum:
    LENGTH_SIZE = 4
    EMPTY_SIZE = 5  # of a document without members
    UNDEFINED = 0x06
    REGEX = 0x0B
    DB_POINTER = 0x0C
    CODE = 0x0D
    SYMBOL = 0x0E
    CODE_WITH_SCOPE = 0x0F
    DECIMAL = 0x13
    MAX_KEY = 0x7F
    MIN_KEY = 0xFF
    CHAINS = 256
    SECONDS_SIZE = 19  # of a time without a fraction and a zone
    LARGEST_FRACTION = 9

cdef struct Field:
    const uint8_t* name
    size_t name_size
    bint is_time  # texts are looked at
    int32_t next  # of its chain; -1: the last
    int64_t values
    int64_t dates
    int64_t texts
    int64_t seen_in  # number of the document that had it last


cdef class FieldCounter:
    """Counts what the fields of these names hold, in all documents that it is given."""

    cdef list _names
    cdef Field* _fields
    cdef int32_t _size
    cdef int32_t[CHAINS] _chains
    cdef int64_t _number  # of documents looked at
    cdef readonly int64_t documents
    cdef readonly int64_t irregular  # documents that have a field twice, or that are no BSON

    def __cinit__(self, fields):
        cdef int32_t index, chain
        self._names = [name for name, _ in fields]
        self._size = len(self._names)
        self._fields = <Field*> calloc(self._size + 1, sizeof(Field))
        if self._fields is NULL:
            raise MemoryError
        memset(self._chains, 0xFF, sizeof(self._chains))
        for index, (name, is_time) in enumerate(fields):
            self._fields[index].name = <const uint8_t*> PyBytes_AS_STRING(<bytes?> name)
            self._fields[index].name_size = PyBytes_GET_SIZE(name)
            self._fields[index].is_time = is_time
            chain = chain_of(self._fields[index].name, self._fields[index].name_size)
            self._fields[index].next = self._chains[chain]
            self._chains[chain] = index

    def __dealloc__(self):
        free(self._fields)

    def add(self, bytes documents not None, int sign=1):
        """Count documents that stand one after the other; ``sign`` -1: count them no more."""
        cdef const uint8_t* place = <const uint8_t*> PyBytes_AS_STRING(documents)
        cdef const uint8_t* end = place + PyBytes_GET_SIZE(documents)
        cdef int32_t size
        while place < end:
            self.documents += sign
            size = little32(place) if end - place >= EMPTY_SIZE else 0
            if size < EMPTY_SIZE or size > end - place:
                self.irregular += sign
                return
            self._number += 1
            if not self._add(place + LENGTH_SIZE, place + size - 1, sign):
                self.irregular += sign
            place += size

    def counts(self):
        """Return for each field the values, the dates, and the texts of the form of a time."""
        return [(self._fields[i].values, self._fields[i].dates, self._fields[i].texts) for i in range(self._size)]

    cdef bint _add(self, const uint8_t* place, const uint8_t* end, int sign) noexcept:
        """Whether it is BSON, and has no field twice."""
        cdef const uint8_t* name
        cdef const uint8_t* closed
        cdef Field* field
        cdef int64_t size
        cdef uint8_t kind
        cdef bint is_regular = True
        while place < end:
            kind = place[0]
            name = place + 1
            closed = <const uint8_t*> memchr(name, 0, end - name)
            if closed is NULL:
                return False
            place = closed + 1
            size = size_of(kind, place, end - place)
            if size < 0:
                return False
            field = self._find(name, closed - name)
            if field is not NULL:
                if field.seen_in == self._number:
                    is_regular = False
                field.seen_in = self._number
                if kind != NULL_VALUE and kind != UNDEFINED:
                    field.values += sign
                    if kind == DATE:
                        field.dates += sign
                    elif kind == TEXT and field.is_time and is_time(place + LENGTH_SIZE, size - LENGTH_SIZE - 1):
                        field.texts += sign
            place += size
        return is_regular

    cdef Field* _find(self, const uint8_t* name, size_t size) noexcept:
        cdef int32_t index = self._chains[chain_of(name, size)]
        cdef Field* field
        while index >= 0:
            field = self._fields + index
            if field.name_size == size and memcmp(field.name, name, size) == 0:
                return field
            index = field.next
        return NULL


cdef inline uint8_t chain_of(const uint8_t* name, size_t size) noexcept:
    if size == 0:
        return 0
    return <uint8_t> (31 * size + 7 * name[0] + 3 * name[size // 2] + name[size - 1])


cdef int64_t size_of(uint8_t kind, const uint8_t* value, size_t room) noexcept:
    """Return the bytes of a value of any type, all of them within the room; -1: it is none."""
    cdef int64_t size = value_size(kind, value, room)
    cdef const uint8_t* closed
    if size >= 0:
        return size
    if kind == UNDEFINED or kind == MIN_KEY or kind == MAX_KEY:
        return 0
    if kind == DECIMAL:
        size = 16
    elif kind == CODE or kind == SYMBOL:
        size = value_size(TEXT, value, room)
    elif kind == DB_POINTER:
        size = value_size(TEXT, value, room)
        if size >= 0:
            size += 12
    elif kind == CODE_WITH_SCOPE:
        size = little32(value) if room >= LENGTH_SIZE else -1
        if size < LENGTH_SIZE:
            return -1
    elif kind == REGEX:
        closed = <const uint8_t*> memchr(value, 0, room)
        if closed is NULL:
            return -1
        size = closed + 1 - value
        closed = <const uint8_t*> memchr(closed + 1, 0, room - size)
        if closed is NULL:
            return -1
        size = closed + 1 - value
    return size if size <= <int64_t> room else -1


cdef bint is_time(const uint8_t* text, int64_t size) noexcept:
    """Whether a text has the form ``REGULAR_TIME`` of ``migrator.parity.uniformity``."""
    cdef const char* form = b"0000-00-00T00:00:00"
    cdef int64_t i, digits = 0
    if size < SECONDS_SIZE + 5:
        return False
    for i in range(SECONDS_SIZE):
        if not is_digit(text[i]) if form[i] == c"0" else text[i] != form[i]:
            return False
    text += SECONDS_SIZE
    size -= SECONDS_SIZE
    if text[0] == c".":
        while digits + 1 < size and is_digit(text[digits + 1]):
            digits += 1
        if not 1 <= digits <= LARGEST_FRACTION:
            return False
        text += digits + 1
        size -= digits + 1
        if digits == 3 and size == 1 and text[0] == c"Z":
            return True
    return size == 6 and memcmp(text, b"+00:00", 6) == 0


cdef inline bint is_digit(uint8_t byte) noexcept:
    return c"0" <= byte <= c"9"
