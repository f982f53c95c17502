"""Plain documents of a collection as rows of binary COPY, by a plan that was made from the collection's mapping.

The plan (``migrator.sources.mapping.native_plan``) is data. One pass over a document finds its fields in the order in
which ``encode`` writes them, checks their types, and makes the cell of each column. The row is written, and then the
document is rebuilt from the bytes of the row: only one whose rebuilt bytes are its own is plain. Any other is handed
to the Python codec, which is the definition: nothing is rejected, noted or repaired here.

No byte after the batch is read: each length in BSON is checked before it is used.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.math cimport fabs, floor, modf, round as round_half_away
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT32_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from hashlib import sha1

from migrator_speedups.bson_values cimport (
    ARRAY,
    BINARY,
    DATE,
    DOCUMENT,
    DOUBLE,
    FLAG,
    INT32,
    INT64,
    NULL_VALUE,
    OBJECT_ID,
    TEXT,
    is_text,
    little32,
    little64,
    value_size,
)
from migrator_speedups.json_text cimport Buffer, Shape, write_bson, write_json, write_python_json
from migrator_speedups.json_text import compile_shape
from migrator_speedups.outlines cimport Hole, Outlines
from migrator_speedups.pickled_jobs cimport PickledJobs, read_metadata, write_metadata

INTERFACE = 13  # of the plans that are taken: the number of ``native_plan.INTERFACE``

cdef extern from *:
    """
    static inline uint16_t swapped16(uint16_t v) { return __builtin_bswap16(v); }
    static inline uint32_t swapped32(uint32_t v) { return __builtin_bswap32(v); }
    static inline uint64_t swapped64(uint64_t v) { return __builtin_bswap64(v); }
    """
    uint16_t swapped16(uint16_t) noexcept
    uint32_t swapped32(uint32_t) noexcept
    uint64_t swapped64(uint64_t) noexcept

cdef enum Operation:
    MEMO
    PLAIN_TEXT
    TRIMMED_TEXT
    BSON_DATE
    ISO
    JAVASCRIPT
    EPOCH
    NUMBER
    BOOLEAN
    TEXTS
    JSON
    REFERENCE
    OWN_ID
    TENANT
    LITERAL
    GROUP
    EXCERPT
    REAL
    BYTES
    STRINGIFIED
    PICKLED_JOB
    DUE
    SERIALIZED
    KOMBU_JSON
    OBJECT_ID_DIGITS

OPERATIONS = {
    "memo": MEMO,
    "text": PLAIN_TEXT,
    "trimmed": TRIMMED_TEXT,
    "date": BSON_DATE,
    "iso": ISO,
    "iso-z": JAVASCRIPT,
    "epoch": EPOCH,
    "number": NUMBER,
    "flag": BOOLEAN,
    "texts": TEXTS,
    "json": JSON,
    "reference": REFERENCE,
    "own-id": OWN_ID,
    "tenant": TENANT,
    "literal": LITERAL,
    "group": GROUP,
    "excerpt": EXCERPT,
    "double": REAL,
    "binary": BYTES,
    "javascript-json": STRINGIFIED,
    "pickled-job": PICKLED_JOB,
    "due": DUE,
    "serialized": SERIALIZED,
    "kombu-json": KOMBU_JSON,
    "object-id-digits": OBJECT_ID_DIGITS,
}

cdef enum:
    MOST_WORDS = 2048  # values that a memo keeps, and as many older ones
    RECENT = 8  # values of a memo that are found without a dictionary
    LONGEST_WORD = 512  # a longer value is not worth a memo
    LONGEST_EXCERPT = 2048  # the same of the fields of an excerpt together
    MOST_REFUSALS = 256  # values for the Python codec, after which no more are asked for unless most others were not
    INLINE = 40  # bytes of a cell that is kept in its place
    HEX_DIGITS = 32
    UUID_SIZE = 16
    UUID_TEXT = 36
    TEXT_OID = 25
    OBJECT_ID_SIZE = 12
    EXACT_DIGITS = 15  # each number of so many digits is below 2^53
    MOST_TABLES = 8
    MOST_UNKNOWN = 32  # elements of a document that the plan does not know
    LARGEST = 2147483647

cdef enum Filling:
    HOLE  # the text
    LABELLED  # the text, a colon, and the digits of the _id
    MOMENT  # the time, and microseconds after it
    LASTED  # milliseconds from the time to another one
    FREE_JSON
    WITH_TIMES  # pieces of JSON, with times between them

FILLINGS = {
    "hole": HOLE,
    "labelled": LABELLED,
    "moment": MOMENT,
    "lasted": LASTED,
    "json": FREE_JSON,
    "with-times": WITH_TIMES,
}

cdef enum Mark:
    CARRIED
    ABSENT  # the rows give it, and the document has no such field
    NULL_ADDED  # null in the document, and the rows give nothing

cdef int64_t EPOCH_SECONDS = 946684800  # of PostgreSQL, 2000, since 1970
cdef int64_t MICROSECONDS = 1000000
cdef int64_t FIRST_SECOND = -62135596800  # of the year 1
cdef int64_t LAST_SECOND = 253402300799  # of the year 9999
cdef int64_t EXACT = 9007199254740992  # 2^53: up to it, a double holds every whole number

cdef struct Cell:
    const uint8_t* source  # where the bytes are, if they are neither in ``inline`` nor in the scratch
    size_t offset  # in the scratch
    int32_t size  # -1: null
    uint8_t place  # 0: source, 1: inline, 2: scratch
    uint8_t inline[INLINE]

cdef struct Written:
    size_t offset  # in the row's table, of the cell's first byte
    int32_t size

cdef struct Step:
    Operation operation
    int column
    int table
    int stop  # of a group: the step after its last
    int reference  # position among the answers; -1: the computed id, whether or not such a row is stored
    const uint8_t* key
    size_t key_size  # with the zero byte
    bint required
    bint written  # also if it holds the default
    size_t longest  # of an indexed text; 0: no limit
    int64_t least
    int64_t most
    int width  # of a number's cell
    uint8_t number  # BSON type in which a number is written
    int64_t per_second
    bint has_none
    int64_t none
    bint sized  # of a number: doubles are for the Python codec
    int beside  # the step of the result that says how this field is written
    PyObject* default  # cell, or NULL
    PyObject* null_as  # type and value that are written for null, or NULL
    PyObject* prefix
    PyObject* literal  # the whole element
    PyObject* shape
    PyObject* memo
    PyObject* others  # further columns with the same cell
    # of the document that is read:
    bint seen
    uint8_t kind
    const uint8_t* value
    size_t size
    PyObject* entry
    Mark mark


cdef inline void fill(Cell* cell, bytes held) noexcept:
    """Let a cell be bytes that stay referenced elsewhere while it is used; None: null."""
    if held is None:
        cell.size = -1
    else:
        cell.place = 0
        cell.source = <const uint8_t*> PyBytes_AS_STRING(held)
        cell.size = <int32_t> PyBytes_GET_SIZE(held)

cdef inline void put16(uint8_t* place, int16_t value) noexcept:
    cdef uint16_t swapped = swapped16(<uint16_t> value)
    memcpy(place, &swapped, 2)


cdef inline void put32(uint8_t* place, int32_t value) noexcept:
    cdef uint32_t swapped = swapped32(<uint32_t> value)
    memcpy(place, &swapped, 4)


cdef inline void put64(uint8_t* place, int64_t value) noexcept:
    cdef uint64_t swapped = swapped64(<uint64_t> value)
    memcpy(place, &swapped, 8)


cdef inline int64_t get64(const uint8_t* place) noexcept:
    cdef uint64_t value
    memcpy(&value, place, 8)
    return <int64_t> swapped64(value)


cdef inline int32_t get32(const uint8_t* place) noexcept:
    cdef uint32_t value
    memcpy(&value, place, 4)
    return <int32_t> swapped32(value)


cdef inline int16_t get16(const uint8_t* place) noexcept:
    cdef uint16_t value
    memcpy(&value, place, 2)
    return <int16_t> swapped16(value)


# -- Texts -----------------------------------------------------------------------------------------------------------


cdef bint has_long_number(const uint8_t* text, size_t size) noexcept:
    """Whether more digits than ``EXACT_DIGITS`` follow each other, be it in a number or in a text."""
    cdef size_t i
    cdef int digits = 0
    for i in range(size):
        digits = digits + 1 if 48 <= text[i] <= 57 else 0
        if digits > EXACT_DIGITS:
            return True
    return False


cdef bint may_be_space(uint8_t c) noexcept:
    """Whether a text that begins or ends with this byte may be shortened by ``str.strip``."""
    return 9 <= c <= 13 or 28 <= c <= 32


cdef bint is_trimmed(const uint8_t* text, size_t size) noexcept:
    """Whether valid UTF-8 is not blank, and surely as ``str.strip`` leaves it."""
    cdef size_t begin
    if size == 0 or may_be_space(text[0]) or may_be_space(text[size - 1]):
        return False
    if text[0] in (0xC2, 0xE1, 0xE2, 0xE3):
        return False  # U+0085, U+00A0, U+1680, U+2000 and more, U+3000 begin so
    if text[size - 1] >= 0x80:
        begin = size - 1
        while begin > 0 and text[begin] & 0xC0 == 0x80:
            begin -= 1
        if text[begin] in (0xC2, 0xE1, 0xE2, 0xE3):
            return False
    return True


cdef inline bint is_hex(uint8_t c) noexcept:
    return 48 <= c <= 57 or 97 <= c <= 102


cdef inline uint8_t digit_of(uint8_t c) noexcept:
    return c - 48 if c <= 57 else c - 87


cdef bint read_hex(const uint8_t* text, size_t bytes, uint8_t* out) noexcept:
    """Read lower-case digits."""
    cdef size_t i
    for i in range(bytes):
        if not is_hex(text[2 * i]) or not is_hex(text[2 * i + 1]):
            return False
        out[i] = digit_of(text[2 * i]) << 4 | digit_of(text[2 * i + 1])
    return True


cdef void write_hex(const uint8_t* value, size_t bytes, uint8_t* out) noexcept:
    cdef const char* digits = b"0123456789abcdef"
    cdef size_t i
    for i in range(bytes):
        out[2 * i] = digits[value[i] >> 4]
        out[2 * i + 1] = digits[value[i] & 15]


cdef bint kept_uuid(const uint8_t* text, size_t size, uint8_t* out) noexcept:
    """Read the UUID that a source id keeps, as ``identity.row_id`` does; False if it keeps none."""
    cdef size_t i, place = 0
    cdef uint8_t digits[HEX_DIGITS]
    if size == UUID_TEXT and text[8] == 45:
        for i in range(UUID_TEXT):
            if i == 8 or i == 13 or i == 18 or i == 23:
                if text[i] != 45:
                    return False
            else:
                digits[place] = text[i]
                place += 1
        return read_hex(digits, UUID_SIZE, out)
    if size > HEX_DIGITS + 1 and text[size - HEX_DIGITS - 1] == 95:
        if not (65 <= text[0] <= 90 or 97 <= text[0] <= 122):
            return False
        for i in range(1, size - HEX_DIGITS - 1):
            if not (
                65 <= text[i] <= 90 or 97 <= text[i] <= 122 or 48 <= text[i] <= 57 or text[i] == 95 or text[i] == 45
            ):
                return False
        return read_hex(text + size - HEX_DIGITS, UUID_SIZE, out)
    return False


# -- Times -----------------------------------------------------------------------------------------------------------


cdef int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept:
    """Return the days since 1970 (proleptic Gregorian; Howard Hinnant's algorithm)."""
    cdef int64_t era, of_era, of_year
    year -= month <= 2
    era = year // 400 if year >= 0 else (year - 399) // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


cdef void date_of(int64_t days, int* year, int* month, int* day) noexcept:
    cdef int64_t era, of_era, year_of_era, of_year, shifted
    days += 719468
    era = days // 146097 if days >= 0 else (days - 146096) // 146097
    of_era = days - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day[0] = <int> (of_year - (153 * shifted + 2) // 5 + 1)
    month[0] = <int> (shifted + 3 if shifted < 10 else shifted - 9)
    year[0] = <int> (year_of_era + era * 400 + (month[0] <= 2))


cdef inline bint read_digits(const uint8_t* text, int count, int* out) noexcept:
    cdef int i
    out[0] = 0
    for i in range(count):
        if text[i] < 48 or text[i] > 57:
            return False
        out[0] = out[0] * 10 + text[i] - 48
    return True


cdef bint read_seconds(const uint8_t* text, int64_t* seconds) noexcept:
    """Read ``2025-11-02T08:00:00``, 19 bytes: seconds since 1970."""
    cdef int year, month, day, hour, minute, second, days
    if not (
        read_digits(text, 4, &year)
        and text[4] == 45
        and read_digits(text + 5, 2, &month)
        and text[7] == 45
        and read_digits(text + 8, 2, &day)
        and text[10] == 84
        and read_digits(text + 11, 2, &hour)
        and text[13] == 58
        and read_digits(text + 14, 2, &minute)
        and text[16] == 58
        and read_digits(text + 17, 2, &second)
    ):
        return False
    if year < 1 or month < 1 or month > 12 or day < 1 or hour > 23 or minute > 59 or second > 59:
        return False
    days = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        days = 30
    elif month == 2:
        days = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if day > days:
        return False
    seconds[0] = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
    return True


cdef bint read_iso(const uint8_t* text, size_t size, int64_t* microseconds) noexcept:
    """Read a time as ``times.format_iso`` writes it: microseconds since 2000."""
    cdef int64_t seconds, fraction = 0
    cdef size_t i, digits = 0
    if size < 25 or not read_seconds(text, &seconds):
        return False
    if size > 25:
        digits = size - 26
        if text[19] != 46 or digits < 1 or digits > 6:
            return False
        for i in range(6):
            fraction *= 10
            if i < digits:
                if text[20 + i] < 48 or text[20 + i] > 57:
                    return False
                fraction += text[20 + i] - 48
    if memcmp(text + size - 6, b"+00:00", 6) != 0:
        return False
    microseconds[0] = (seconds - EPOCH_SECONDS) * MICROSECONDS + fraction
    return True


cdef bint read_javascript(const uint8_t* text, size_t size, int64_t* microseconds) noexcept:
    """Read a time as ``times.format_javascript`` writes it."""
    cdef int64_t seconds
    cdef int fraction
    if size != 24 or not read_seconds(text, &seconds) or text[19] != 46 or text[23] != 90:
        return False
    if not read_digits(text + 20, 3, &fraction):
        return False
    microseconds[0] = (seconds - EPOCH_SECONDS) * MICROSECONDS + fraction * 1000
    return True


cdef inline void put_digits(uint8_t* out, int count, int64_t value) noexcept:
    cdef int i
    for i in range(count - 1, -1, -1):
        out[i] = <uint8_t> (48 + value % 10)
        value //= 10


cdef inline int64_t floored(int64_t value, int64_t by) noexcept:
    """Divide as Python does (the modules are compiled with C's division)."""
    cdef int64_t found = value // by
    return found - 1 if value % by < 0 else found


cdef size_t put_seconds(int64_t seconds, uint8_t* out) noexcept:
    cdef int year, month, day
    cdef int64_t days = floored(seconds, 86400), rest
    rest = seconds - days * 86400
    date_of(days, &year, &month, &day)
    put_digits(out, 4, year)
    out[4] = 45
    put_digits(out + 5, 2, month)
    out[7] = 45
    put_digits(out + 8, 2, day)
    out[10] = 84
    put_digits(out + 11, 2, rest // 3600)
    out[13] = 58
    put_digits(out + 14, 2, rest // 60 % 60)
    out[16] = 58
    put_digits(out + 17, 2, rest % 60)
    return 19


cdef size_t put_iso(int64_t microseconds, uint8_t* out) noexcept:
    """Write a time as ``times.format_iso`` does, at most 32 bytes."""
    cdef int64_t seconds = floored(microseconds, MICROSECONDS)
    cdef int64_t fraction = microseconds - seconds * MICROSECONDS
    cdef size_t size = put_seconds(seconds + EPOCH_SECONDS, out)
    if fraction:
        out[size] = 46
        put_digits(out + size + 1, 6, fraction)
        size += 7
        while out[size - 1] == 48:
            size -= 1
    memcpy(out + size, b"+00:00", 6)
    return size + 6


cdef size_t put_javascript(int64_t microseconds, uint8_t* out) noexcept:
    cdef int64_t seconds = floored(microseconds, MICROSECONDS)
    cdef size_t size = put_seconds(seconds + EPOCH_SECONDS, out)
    out[size] = 46
    put_digits(out + size + 1, 3, (microseconds - seconds * MICROSECONDS) // 1000)
    out[size + 4] = 90
    return size + 5


cdef bint microseconds_of(double value, int64_t per_unit, int64_t* out) noexcept:
    """Put what ``timedelta`` makes of a number of some unit into ``out``; false for a number that is too large.

    The microseconds are rounded to the nearest, of two to the even one.
    """
    cdef double whole, fraction, part, left, rounded
    cdef int64_t found
    if not (fabs(value) * per_unit < 4e17):
        return False
    fraction = modf(value, &whole)
    found = <int64_t> whole * per_unit
    left = modf(fraction * per_unit, &part)
    found += <int64_t> part
    if left:
        rounded = round_half_away(left)
        if fabs(rounded - left) == 0.5:
            rounded = 2.0 * round_half_away((left + (found & 1)) * 0.5) - (found & 1)
        found += <int64_t> rounded
    out[0] = found
    return True


# -- BSON ------------------------------------------------------------------------------------------------------------


cdef inline bint text_of(const Step* step, const uint8_t** text, size_t* size) noexcept:
    """Find the text of a value without its length and its zero byte; False if it is no text."""
    if step.kind != TEXT:
        return False
    text[0] = step.value + 4
    size[0] = step.size - 5
    return step.value[step.size - 1] == 0 and is_text(text[0], size[0])


cdef inline bint is_json_or_longer(const uint8_t* text, size_t size) noexcept:
    """Whether the bytes of a text surely stand for a text: one byte may be a number of MessagePack."""
    return size == 0 or (text[0] < 0x80 and (size > 1 or 48 <= text[0] <= 57))


cdef inline bint is_of_json(const Step* result) noexcept:
    """Whether a result that was read is of JSON: YAML ends with a line end, all else is binary."""
    if not result.seen:
        return False
    if result.kind == TEXT:
        return result.size == 5 or result.value[result.size - 2] != 10
    return result.kind == NULL_VALUE


# -- Rows ------------------------------------------------------------------------------------------------------------


@cython.final
cdef class TableRows:

    def __cinit__(self):
        self.data = Buffer()
        self.starts = Buffer()
        self.documents = Buffer()
        self.count = 0

    cdef const uint8_t* row(self, Py_ssize_t index, size_t* size) noexcept:
        cdef size_t* starts = <size_t*> self.starts.data
        size[0] = (starts[index + 1] if index + 1 < self.count else self.data.used) - starts[index]
        return self.data.data + starts[index]

    cdef int32_t document_of(self, Py_ssize_t index) noexcept:
        return (<int32_t*> self.documents.data)[index]

    def copy_bytes(self, bytes more=b""):
        """Return the rows as COPY takes them, without header and trailer, and after them ``more`` rows."""
        cdef bytes rows = PyBytes_FromStringAndSize(NULL, self.data.used + PyBytes_GET_SIZE(more))
        cdef char* written = PyBytes_AS_STRING(rows)
        if self.data.used:
            memcpy(written, self.data.data, self.data.used)
        memcpy(written + self.data.used, PyBytes_AS_STRING(more), PyBytes_GET_SIZE(more))
        return rows

    def row_bytes(self, Py_ssize_t index):
        """Return one row."""
        cdef size_t size
        cdef const uint8_t* found
        if not 0 <= index < self.count:
            raise IndexError(index)
        found = self.row(index, &size)
        return PyBytes_FromStringAndSize(<char*> found, size)

    def ids(self):
        """Return the id of each row, 16 bytes."""
        cdef size_t size
        cdef Py_ssize_t index
        return [PyBytes_FromStringAndSize(<char*> self.row(index, &size) + 6, UUID_SIZE) for index in range(self.count)]

    def positions(self):
        """Return the position in the batch of each row's document."""
        cdef Py_ssize_t index
        return [self.document_of(index) for index in range(self.count)]

    cdef int begin(self, int32_t document) except -1:
        cdef size_t start = self.data.used
        self.starts.append(&start, sizeof(size_t))
        self.documents.append(&document, sizeof(int32_t))
        self.count += 1
        return 0

    cdef int undo(self) except -1:
        """Take back the last row."""
        self.count -= 1
        self.data.used = (<size_t*> self.starts.data)[self.count]
        self.starts.used -= sizeof(size_t)
        self.documents.used -= sizeof(int32_t)
        return 0

    cdef int drop(self, set documents) except -1:
        """Remove the rows of these documents; those between two of them move together."""
        cdef size_t* starts = <size_t*> self.starts.data
        cdef int32_t* owners = <int32_t*> self.documents.data
        cdef size_t start, begin = 0, used = 0
        cdef Py_ssize_t index, kept = 0
        for index in range(self.count + 1):
            start = starts[index] if index < self.count else self.data.used
            if index < self.count and owners[index] not in documents:
                starts[kept] = start - begin + used
                owners[kept] = owners[index]
                kept += 1
                continue
            if begin != used:
                memmove(self.data.data + used, self.data.data + begin, start - begin)
            used += start - begin
            if index < self.count:
                begin = starts[index + 1] if index + 1 < self.count else self.data.used
        self.count = kept
        self.data.used = used
        self.starts.used = kept * sizeof(size_t)
        self.documents.used = kept * sizeof(int32_t)
        return 0


@cython.final
cdef class Rows:

    cdef TableRows table(self, Py_ssize_t index):
        return <TableRows> self.tables[index]

    @property
    def plain(self):
        """Number of documents whose rows are here."""
        return self.documents - len(self.handed)

    def raw(self, Py_ssize_t position):
        """Return a document of the batch."""
        cdef size_t* offsets = <size_t*> self.offsets.data
        if not 0 <= position < self.documents:
            raise IndexError(position)
        return self.batch[offsets[position] : offsets[position + 1]]

    def raws(self, positions):
        """Return documents of the batch."""
        return [self.raw(position) for position in positions]

    def apply_answers(self, answers):
        """Hand the documents of which an unknown reference leads nowhere, or elsewhere, to the Python codec.

        ``answers`` has an answer for all of ``unknown`` now.
        """
        cdef set dropped = set()
        for document, reference, key in self.waiting:
            if not answers[reference][key]:
                dropped.add(document)
        if dropped:
            for table in self.tables:
                (<TableRows> table).drop(dropped)
            self.handed = sorted({*self.handed, *dropped})
            self.remainders = [one for one in self.remainders if one[0] not in dropped]
        self.unknown = []
        self.waiting = []


# -- The codec -------------------------------------------------------------------------------------------------------


@cython.final
cdef class Memo:
    """Values of a field that were read before: BSON type and value to cell and written bytes, or to nothing.

    A full memo forgets the values that were not read since it was full before, and keeps the others.
    """

    cdef object learn
    cdef dict known
    cdef dict older
    cdef PyObject* recent[RECENT]
    cdef int next
    cdef size_t longest
    cdef Py_ssize_t refused, learned

    def __cinit__(self, learn, longest=LONGEST_WORD):
        self.learn = learn
        self.longest = longest
        self.refused = self.learned = 0
        self.known, self.older = {}, {}
        memset(self.recent, 0, sizeof(self.recent))
        self.next = 0

    cdef tuple find(self, uint8_t kind, const uint8_t* value, size_t size):
        """Return (type and value, cell, type and value as written), or None for a value for the Python codec."""
        cdef int i
        cdef tuple entry
        cdef bytes key
        cdef const char* text
        for i in range(RECENT):
            if self.recent[i] is NULL:
                break
            key = <bytes> (<tuple> self.recent[i])[0]
            text = PyBytes_AS_STRING(key)
            if (
                <size_t> PyBytes_GET_SIZE(key) == size + 1
                and <uint8_t> text[0] == kind
                and memcmp(text + 1, value, size) == 0
            ):
                return <tuple> self.recent[i]
        if size > self.longest:
            return None
        key = bytes([kind]) + PyBytes_FromStringAndSize(<char*> value, size)
        found = self.known.get(key, self)
        if found is self:
            found = self.older.get(key, self)
            if found is self:
                if self.refused > MOST_REFUSALS + self.learned:
                    return None  # to ask is dear, and the answer is nearly always the same
                learned = self.learn(key)
                if learned is None:
                    self.refused += 1
                    found = None
                else:
                    self.learned += 1
                    found = (key, *learned)
            if len(self.known) >= MOST_WORDS:
                memset(self.recent, 0, sizeof(self.recent))
                self.next = 0
                self.older, self.known = self.known, {}
            self.known[key] = found
        if found is not None:
            entry = found
            self.recent[self.next] = <PyObject*> entry  # kept alive by ``known`` or ``older``
            self.next = (self.next + 1) % RECENT
        return found


cdef object _NO_ANSWERS = ()


@cython.final
cdef class RowCodec:
    """Reads the plain documents of one collection. Not to be used by two threads at a time."""

    cdef Step* steps
    cdef object room
    cdef int count
    cdef list kept
    cdef Cell* cells
    cdef Written* laid
    cdef object cell_room, laid_room
    cdef int width  # columns of all tables
    cdef int table_count
    cdef int first_column[MOST_TABLES + 1]
    cdef list templates  # cell of each column that no field fills; None: null
    cdef list made_by  # of each table: columns of which one makes its row; empty: always
    cdef list needed  # of each table
    cdef list parents  # of each table: (column, position of the table whose id it holds)
    cdef list namespaces  # of each table: 16 bytes
    cdef list keeps  # of each table: whether its id keeps a UUID
    cdef bytes collection
    cdef bytes tenant_given
    cdef object order_room
    cdef int* order  # steps of the fields, in the order of a document that has another one than the plan
    cdef int ordered  # how many those are
    cdef bint is_reordered
    cdef int extra  # column of the remainder; -1: a document with one is for the Python codec
    cdef object reserved  # names that no unknown element has
    cdef dict losses  # name of an element to the value of which nothing is lost; None: null alone
    cdef Memo remainder_memo
    cdef tuple remainder  # key, cell, remainder; None: there is none
    cdef int unknown_count
    cdef const uint8_t* unknown[MOST_UNKNOWN]  # elements that the plan does not know
    cdef size_t unknown_size[MOST_UNKNOWN]
    cdef int id_time
    cdef int id_text
    cdef int id_plain
    cdef int id_uuid  # column of a UUID that holds an ObjectId after four zero bytes
    cdef size_t id_longest  # of an _id that a column holds as a text; 0: no limit
    cdef tuple choices  # columns with their cases: (position of a step or -1, BSON type and value or None, cell)
    cdef tuple run  # columns that complete a run; empty: it is not completed
    cdef list table_of  # of each column
    cdef int expected  # a table without a row of which a document is for the Python codec; -1: none
    cdef int trigger_table  # -1: there are no triggers
    cdef int trigger_kind, trigger_anchor, trigger_start, trigger_end, cron_line, cron_dialect, cron_zone
    cdef tuple trigger_causes, event_columns
    cdef bytes default_anchor, default_dialect
    cdef Memo evaluable
    cdef tuple excerpt_steps, excerpt_columns
    cdef int excerpt_tables
    cdef Memo excerpt_memo  # None: there is no excerpt
    cdef Outlines outlines  # None: the documents are read field by field
    cdef PickledJobs jobs  # None: the documents are no pickled jobs
    cdef int job_step, due_step, job_name, job_payload, job_metadata, job_due, job_specification
    cdef Buffer key
    cdef Buffer scratch
    cdef Buffer back
    # of the document that is read:
    cdef const uint8_t* id_value
    cdef uint8_t id_kind
    cdef size_t id_size
    cdef const uint8_t* tenant
    cdef size_t tenant_size
    cdef const uint8_t* source_id
    cdef size_t source_id_size
    cdef uint8_t source_text[64]
    cdef bint is_excluding
    cdef int makes  # tables of which the document makes a row, as bits
    cdef int made  # those of which the row is written
    cdef tuple excerpt  # key, cells of the columns, tables with a row
    cdef object answers
    cdef list asked

    def __init__(self, plan):
        """Take a ``NativePlan``; raises ``KeyError`` for an operation that is not known."""
        cdef Step* step
        cdef int index
        self.kept = [plan]
        self.count = len(plan.steps)
        self.room = bytearray(max(1, self.count) * sizeof(Step))
        self.steps = <Step*> <char*> self.room
        self.order_room = bytearray((self.count + MOST_UNKNOWN) * sizeof(int))
        self.order = <int*> <char*> self.order_room
        tables = plan.tables
        if len(tables) > MOST_TABLES:
            raise ValueError("more tables than a document feeds")
        self.table_count = len(tables)
        self.templates, self.made_by, self.needed, self.parents, self.namespaces, self.keeps = [], [], [], [], [], []
        width = 0
        for index, table in enumerate(tables):
            self.first_column[index] = width
            width += len(table.cells)
            self.templates.extend(table.cells)
            self.made_by.append(table.made_by)
            self.needed.append(table.needed)
            self.parents.append(table.parents)
            self.namespaces.append(table.namespace)
            self.keeps.append(table.keeps_uuid)
        self.first_column[self.table_count] = width
        self.width = width
        self.table_of = [index for index, table in enumerate(tables) for _ in table.cells]
        self._complete_by(plan)
        self.cell_room = bytearray(width * sizeof(Cell))
        self.cells = <Cell*> <char*> self.cell_room
        self.laid_room = bytearray(width * sizeof(Written))
        self.laid = <Written*> <char*> self.laid_room
        self.collection = plan.collection
        self.tenant_given = plan.tenant
        self.id_time, self.id_text, self.run = plan.id_time, plan.id_text, plan.run
        self.id_plain, self.choices = plan.id_plain, plan.choices
        self.id_longest = plan.id_longest
        self.id_uuid = plan.id_uuid
        self.scratch = Buffer()
        self.back = Buffer()
        for index, described in enumerate(plan.steps):
            step = &self.steps[index]
            memset(step, 0, sizeof(Step))
            step.operation = OPERATIONS[described.operation]
            step.column = described.column
            step.table = 0 if step.column < 0 else self.table_of[step.column]
            step.stop = described.stop
            step.reference = described.reference
            key = described.key + b"\0"
            self.kept.append(key)
            step.key = <const uint8_t*> PyBytes_AS_STRING(key)
            step.key_size = len(key)
            step.required = described.required
            step.written = described.written
            step.longest = described.longest
            step.least, step.most = described.least, described.most
            step.width = described.width
            step.number = described.number
            step.per_second = described.per_second
            step.has_none = described.none is not None
            step.none = described.none or 0
            step.sized = described.sized
            step.beside = described.beside
            step.default = self._keep(described.default)
            step.null_as = self._keep(described.null_as)
            step.prefix = self._keep(described.prefix)
            step.literal = self._keep(described.literal)
            step.others = self._keep(described.others or None)
            if described.learn is not None:
                step.memo = self._keep(Memo(described.learn))
            if step.operation == JSON and described.shape is not None:
                step.shape = self._keep(compile_shape(described.shape))

    def _complete_by(self, plan):
        """Take what completes a trigger, and what a function derives."""
        self.expected = plan.expected
        self.key = Buffer()
        self.trigger_table = -1
        trigger = plan.trigger
        if trigger is not None:
            self.trigger_table, self.trigger_causes = trigger.table, trigger.causes
            self.trigger_kind, self.trigger_anchor = trigger.kind, trigger.anchor
            self.trigger_start, self.trigger_end = trigger.start, trigger.end
            self.cron_line, self.cron_dialect, self.cron_zone = trigger.cron
            self.default_anchor, self.default_dialect = trigger.default_anchor, trigger.dialect
            self.event_columns = trigger.of_events
            self.evaluable = Memo(trigger.evaluable)
        excerpt = plan.excerpt
        if excerpt is not None:
            self.excerpt_steps, self.excerpt_columns = excerpt.steps, excerpt.columns
            self.excerpt_tables = excerpt.tables
            self.excerpt_memo = Memo(excerpt.learn, LONGEST_EXCERPT)
        remainder = plan.remainder
        self.extra = -1
        if remainder is not None:
            self.extra, self.reserved, self.losses = remainder.column, remainder.reserved, dict(remainder.losses)
            self.remainder_memo = Memo(remainder.learn, LONGEST_EXCERPT)
        outline = plan.outline
        if outline is not None:
            self.outlines = Outlines(outline.learn, outline.fields, outline.longest)
            self.extra = outline.extra
        jobs = plan.jobs
        if jobs is not None:
            self.jobs = PickledJobs(jobs.learn, jobs.offset)
            self.job_step, self.due_step = jobs.steps
            (
                self.job_name, self.job_payload, self.job_metadata, self.job_due, self.job_specification
            ) = jobs.columns

    cdef PyObject* _keep(self, value):
        if value is None:
            return NULL
        self.kept.append(value)
        return <PyObject*> value

    def read(self, bytes batch not None, excluded=frozenset(), answers=_NO_ANSWERS):
        """Return the rows of the plain documents of a batch, and which documents are for the Python codec.

        ``excluded``: source ids of documents for the Python codec. ``answers``: for each reference of the plan, True
        if its id is taken as it is, False if a document that has one is for the Python codec, or a mapping from id and
        tenant (16 bytes and the text) to whether the reference leads to a row of that tenant; what the mapping lacks
        is listed in ``Rows.unknown``, and must be added (``Rows.apply_answers``). Raises ``ValueError`` for bytes that are
        not one document after the other.
        """
        cdef Rows rows = Rows.__new__(Rows)
        cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(batch)
        cdef size_t end = PyBytes_GET_SIZE(batch), start = 0
        cdef int32_t size
        cdef int plain, index
        rows.batch = batch
        rows.documents = 0
        rows.handed = []
        rows.unknown = []
        rows.waiting = []
        rows.remainders = []
        rows.offsets = Buffer()
        rows.tables = tuple([TableRows() for index in range(self.table_count)])
        for index in range(self.table_count):  # rows are seldom larger than their documents: no bytes move then
            rows.table(index).data.grow(end // self.table_count)
        self.is_excluding = bool(excluded)
        self.answers = answers
        seen = set()
        while start < end:
            if end - start < 5:
                raise ValueError("malformed")
            size = little32(data + start)
            if size < 5 or <size_t> size > end - start:
                raise ValueError("malformed")
            rows.offsets.append(&start, sizeof(size_t))
            self.asked = None
            plain = self._read(rows, data + start, size, excluded)
            if not plain:
                rows.handed.append(rows.documents)
            elif self.asked is not None:
                for reference, key in self.asked:
                    rows.waiting.append((rows.documents, reference, key))
                    if (reference, key) not in seen:
                        seen.add((reference, key))
                        rows.unknown.append((reference, key))
            rows.documents += 1
            start += size
        rows.offsets.append(&start, sizeof(size_t))
        self.answers = None
        return rows

    cdef int _read(self, Rows rows, const uint8_t* raw, size_t size, excluded) except -1:
        """Append the rows of a document; return 0, without rows, if it is not plain."""
        cdef int index
        cdef TableRows table
        self.made = 0
        if not self._decode(raw, size):
            return 0
        if self.is_excluding:
            if PyBytes_FromStringAndSize(<char*> self.source_id, self.source_id_size) in excluded:
                return 0
        if not self._decide() or not self._complete():
            return 0
        for index in range(self.table_count):
            if not self.makes >> index & 1:
                continue
            if not self._needs(index):
                break
            table = <TableRows> rows.tables[index]
            table.begin(<int32_t> rows.documents)
            self.made |= 1 << index
            self._lay(table, index)
        else:
            if self._is_proved(rows, raw, size):
                if self.remainder is not None:
                    self._lay_remainder(rows)
                return 1
        for index in range(self.table_count):
            if self.made >> index & 1:
                (<TableRows> rows.tables[index]).undo()
        return 0

    cdef int _lay_remainder(self, Rows rows) except -1:
        """Write the first row anew, with the remainder."""
        cdef TableRows table = <TableRows> rows.tables[0]
        cdef Cell* cell = &self.cells[self.extra]
        cdef bytes text = <bytes> self.remainder[1]
        cell.place, cell.source = 0, <const uint8_t*> PyBytes_AS_STRING(text)
        cell.size = <int32_t> PyBytes_GET_SIZE(text)
        table.data.used = (<size_t*> table.starts.data)[table.count - 1]
        self._lay(table, 0)
        rows.remainders.append((rows.documents, self.remainder[2]))
        return 0

    # -- reading

    cdef int _decode(self, const uint8_t* raw, size_t size) except -1:
        cdef const uint8_t* p = raw + 4
        cdef const uint8_t* end = raw + size - 1
        cdef int64_t length
        cdef int index
        cdef Cell* cell
        if end[0] != 0 or end - p < 5 or memcmp(p + 1, b"_id", 4) != 0:
            return 0
        self.id_kind = p[0]
        p += 5
        length = value_size(self.id_kind, p, end - p)
        if length < 0:
            return 0
        self.id_value, self.id_size = p, length
        if not self._identify():
            return 0
        self.tenant = NULL
        if self.tenant_given is not None:
            self.tenant = <const uint8_t*> PyBytes_AS_STRING(self.tenant_given)
            self.tenant_size = PyBytes_GET_SIZE(self.tenant_given)
        self.scratch.used = 0
        for index in range(self.width):
            cell = &self.cells[index]
            template = self.templates[index]
            if template is None:
                cell.size = -1
            else:
                cell.place = 0
                cell.source = <const uint8_t*> PyBytes_AS_STRING(template)
                cell.size = <int32_t> PyBytes_GET_SIZE(template)
        for index in range(self.count):
            self.steps[index].seen = False
        p += length
        self.ordered, self.is_reordered, self.unknown_count = 0, False, 0
        self.remainder = None
        if self.outlines is not None:
            return self._read_outline(raw, size, p)
        if not self._members(0, self.count, p, end, True):
            return 0
        if self.tenant is NULL:
            return 0
        if self.excerpt_memo is not None and not self._read_excerpt():
            return 0
        if self.jobs is not None and not self._read_job():
            return 0
        return self._references()

    cdef int _read_excerpt(self) except -1:
        """Fill the columns that a function derives from the fields of the excerpt."""
        cdef Step* step
        cdef int32_t size
        cdef Py_ssize_t place
        self.key.used = 0
        for index in self.excerpt_steps:
            step = &self.steps[<int> index]
            if not step.seen:
                self.key.append(b"\0", 1)
                continue
            size = <int32_t> step.size
            self.key.append(&step.kind, 1)
            self.key.append(&size, 4)
            self.key.append(step.value, step.size)
            if self.key.used > LONGEST_EXCERPT:
                return 0
        self.excerpt = self.excerpt_memo.find(0, self.key.data, self.key.used)
        if self.excerpt is None:
            return 0
        for place, column in enumerate(self.excerpt_columns):
            fill(&self.cells[<int> column], <bytes> (<tuple> self.excerpt[1])[place])
        return 1

    cdef int _read_outline(self, const uint8_t* raw, size_t size, const uint8_t* p) except -1:
        """Fill all columns of a document that differs from others in a few values."""
        cdef tuple cells, fillings
        cdef int index, column, operation, first
        cdef int64_t second
        if self.id_kind != OBJECT_ID or not self.outlines.read(raw, size, p):
            return 0
        _, cells, fillings, self.remainder = self.outlines.answer
        for index in range(self.width):
            fill(&self.cells[index], <bytes> cells[index])
        for column, operation, first, second, pieces in fillings:
            if not self._fill_hole(&self.cells[column], operation, &self.outlines.holes[first], second, pieces):
                return 0
        return 1

    cdef int _fill_hole(self, Cell* cell, int operation, Hole* hole, int64_t second, tuple pieces) except -1:
        """Make the cell that holds what is in a hole; 0: it is for the Python codec."""
        cdef int64_t number
        cdef uint8_t[40] text
        cdef size_t start = self.scratch.used
        cdef bytes piece
        if operation == HOLE:
            cell.place, cell.source, cell.size = 0, hole.value + 4, <int32_t> (hole.size - 5)
            return 1
        if operation == MOMENT:
            number = hole.milliseconds * 1000 + second
            if not FIRST_SECOND * MICROSECONDS <= number < (LAST_SECOND + 1) * MICROSECONDS:
                return 0
            cell.place, cell.size = 1, 8
            put64(cell.inline, number - EPOCH_SECONDS * MICROSECONDS)
            return 1
        if operation == LASTED:
            cell.place, cell.size = 1, 8
            put64(cell.inline, self.outlines.holes[<int> second].milliseconds - hole.milliseconds)
            return 1
        if operation == LABELLED:
            self.scratch.append(hole.value + 4, hole.size - 5)
            self.scratch.append(b":", 1)
            self.scratch.append(self.source_text + 18, 24)
        elif operation == FREE_JSON:
            self.scratch.append(b"\x01", 1)
            if not write_json(self.scratch, hole.kind, hole.value, hole.size, None):
                return 0
        else:
            for part in pieces:
                if type(part) is bytes:
                    piece = <bytes> part
                    self.scratch.append(PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
                else:
                    number = (self.outlines.holes[<int> part].milliseconds - EPOCH_SECONDS * 1000) * 1000
                    self.scratch.append(text, put_iso(number, text))
        if self.scratch.used - start > LARGEST:
            return 0
        cell.place, cell.offset, cell.size = 2, start, <int32_t> (self.scratch.used - start)
        return 1

    cdef int _read_job(self) except -1:
        """Fill the columns of a pickled job."""
        cdef Step* job = &self.steps[self.job_step]
        cdef Step* due = &self.steps[self.due_step]
        cdef Cell* cell
        cdef double seconds
        cdef int64_t number = 0
        cdef size_t offset = self.scratch.used
        cdef uint8_t[40] text
        cdef Py_ssize_t column
        cdef bytes found
        if not job.seen or not due.seen or self.id_kind != TEXT or job.kind != BINARY or job.value[4] != 0:
            return 0
        if due.kind != NULL_VALUE:
            if due.kind != DOUBLE:
                return 0
            memcpy(&seconds, due.value, 8)
            if not microseconds_of(seconds, MICROSECONDS, &number) or not (
                FIRST_SECOND * MICROSECONDS <= number < (LAST_SECOND + 1) * MICROSECONDS
            ):
                return 0
        if not self.jobs.read(
            job.value + 5,
            job.size - 5,
            self.source_id,
            self.source_id_size,
            due.kind != NULL_VALUE,
            number,
            self.scratch,
        ):
            return 0
        for column in range(self.width):
            fill(&self.cells[column], <bytes> (<tuple> self.jobs.cells)[column])
        if due.kind != NULL_VALUE:
            cell = &self.cells[self.job_due]
            cell.place, cell.size = 1, 8
            put64(cell.inline, number - EPOCH_SECONDS * MICROSECONDS)
        cell = &self.cells[self.job_payload]
        cell.place, cell.offset, cell.size = 2, offset, <int32_t> (self.scratch.used - offset)
        offset = self.scratch.used
        write_metadata(self.scratch, job.value + 5, job.size - 5)
        cell = &self.cells[self.job_metadata]
        cell.place, cell.offset, cell.size = 2, offset, <int32_t> (self.scratch.used - offset)
        if self.jobs.moment_column >= 0:
            number = self.jobs.moment
            if not FIRST_SECOND * MICROSECONDS <= number < (LAST_SECOND + 1) * MICROSECONDS:
                return 0
            number -= EPOCH_SECONDS * MICROSECONDS
            cell = &self.cells[self.jobs.moment_column]
            cell.place, cell.size = 1, 8
            put64(cell.inline, number)
            offset = self.scratch.used
            found = <bytes> self.jobs.specification[0]
            self.scratch.append(PyBytes_AS_STRING(found), PyBytes_GET_SIZE(found))
            self.scratch.append(text, put_iso(number, text))
            found = <bytes> self.jobs.specification[1]
            self.scratch.append(PyBytes_AS_STRING(found), PyBytes_GET_SIZE(found))
            cell = &self.cells[self.job_specification]
            cell.place, cell.offset, cell.size = 2, offset, <int32_t> (self.scratch.used - offset)
        if self.jobs.name is not NULL:
            if (job.longest and self.jobs.name_size > job.longest) or not is_text(self.jobs.name, self.jobs.name_size):
                return 0
            cell = &self.cells[self.job_name]
            cell.place, cell.source, cell.size = 0, self.jobs.name, <int32_t> self.jobs.name_size
        return 1

    cdef int _identify(self) except -1:
        """Find the source id."""
        if self.id_kind == TEXT:
            self.source_id = self.id_value + 4
            self.source_id_size = self.id_size - 5
            if self.id_value[self.id_size - 1] != 0 or (self.source_id_size and self.source_id[0] == 123):
                return 0
            return is_text(self.source_id, self.source_id_size)
        if self.id_kind == OBJECT_ID:
            memcpy(self.source_text, b'{"_id": {"$oid": "', 18)
            write_hex(self.id_value, 12, self.source_text + 18)
            memcpy(self.source_text + 42, b'"}}', 3)
            self.source_id = self.source_text
            self.source_id_size = 45
            return 1
        return 0

    cdef int _unread(self, int first, int stop, const uint8_t* name, size_t room) noexcept:
        """Return the step of a field that was not read yet, from the first on; -1 if none of them is its step."""
        cdef int index = first
        cdef Step* step
        while index < stop:
            step = &self.steps[index]
            if not step.seen and room >= step.key_size and memcmp(name, step.key, step.key_size) == 0:
                return index
            index = step.stop if step.operation == GROUP else index + 1
        return -1

    cdef int _members(self, int first, int stop, const uint8_t* p, const uint8_t* end, bint is_whole) except -1:
        """Read the members of a document, up to the zero byte at its end; they stand in the order of the steps.

        Those of a whole document may stand in another one (the server sorts the fields of an upsert): the order says
        nothing to the Python codec, and they are written in theirs. Elements that no step knows are kept for the
        remainder.
        """
        cdef int index = first, found
        cdef const uint8_t* begin
        cdef Step* step
        cdef int64_t length
        cdef size_t room
        cdef uint8_t kind
        while p < end:
            begin = p
            kind = p[0]
            p += 1
            room = end - p
            while True:
                if index != stop:
                    step = &self.steps[index]
                    if room >= step.key_size and memcmp(p, step.key, step.key_size) == 0 and not step.seen:
                        break
                if is_whole:
                    found = self._unread(index, stop, p, room)
                    if found < 0:
                        found = self._unread(0, index, p, room)
                        self.is_reordered = True
                    if found < 0:
                        step = NULL
                        break
                    index = found
                    step = &self.steps[index]
                    break
                if index == stop or step.required:
                    return 0
                index = step.stop if step.operation == GROUP else index + 1
            if step is NULL:
                length = self._keep_unknown(begin, end)
                if length == 0:
                    return 0
                p = begin + length
                continue
            if is_whole:
                self.order[self.ordered] = index
                self.ordered += 1
            p += step.key_size
            length = value_size(kind, p, end - p)
            if length < 0:
                return 0
            step.seen = True
            step.kind = kind
            step.value = p
            step.size = <size_t> length
            if step.operation == GROUP:
                if kind != DOCUMENT or p[length - 1] != 0:
                    return 0
                if not self._members(index + 1, step.stop, p + 4, p + length - 1, False):
                    return 0
                index = step.stop
            else:
                if kind == NULL_VALUE:
                    if step.required or step.operation == LITERAL:
                        return 0
                elif step.operation != EXCERPT and not self._value(step):
                    return 0
                index += 1
            p += length
        if is_whole:
            index = first
        while index < stop:
            step = &self.steps[index]
            if step.required and not step.seen:
                return 0
            index = step.stop if step.operation == GROUP else index + 1
        return 1

    cdef int64_t _keep_unknown(self, const uint8_t* begin, const uint8_t* end) except -1:
        """Keep an element that no step knows; return its size, 0 if the document is for the Python codec."""
        cdef const uint8_t* after
        cdef int64_t length
        cdef bytes name
        if self.extra < 0 or self.unknown_count == MOST_UNKNOWN:
            return 0
        after = <const uint8_t*> memchr(begin + 1, 0, end - begin - 1)
        if after is NULL:
            return 0
        name = PyBytes_FromStringAndSize(<char*> begin + 1, after - begin - 1)
        if name in self.reserved:
            return 0
        after += 1
        length = value_size(begin[0], after, end - after)
        if length < 0 or length > LONGEST_EXCERPT:
            return 0
        if begin[0] != NULL_VALUE and name in self.losses and (
            PyBytes_FromStringAndSize(<char*> begin, 1) + PyBytes_FromStringAndSize(<char*> after, length)
            != self.losses[name]
        ):
            return 0
        length += after - begin
        self.unknown[self.unknown_count], self.unknown_size[self.unknown_count] = begin, <size_t> length
        self.unknown_count += 1
        self.order[self.ordered] = -self.unknown_count
        self.ordered += 1
        return length

    cdef int _value(self, Step* step) except -1:
        """Make the cell of a value that is not null."""
        cdef const uint8_t* text
        cdef size_t size
        cdef int64_t number
        cdef double real
        cdef tuple entry
        cdef bytes found
        cdef Cell* cell = &self.cells[step.column]
        if step.operation == MEMO:
            entry = (<Memo> step.memo).find(step.kind, step.value, step.size)
            if entry is None:
                return 0
            step.entry = <PyObject*> entry
            fill(cell, <bytes> entry[1])
        elif step.operation == PLAIN_TEXT or step.operation == TRIMMED_TEXT:
            if not text_of(step, &text, &size) or (step.longest and size > step.longest):
                return 0
            if step.operation == TRIMMED_TEXT and not is_trimmed(text, size):
                return 0
            cell.place, cell.source, cell.size = 0, text, <int32_t> size
        elif step.operation == ISO or step.operation == JAVASCRIPT or step.operation == BSON_DATE:
            if step.operation == BSON_DATE:
                if step.kind != DATE:
                    return 0
                number = little64(step.value)
                if number < FIRST_SECOND * 1000 or number > LAST_SECOND * 1000 + 999:
                    return 0
                number = (number - EPOCH_SECONDS * 1000) * 1000
            elif step.kind != TEXT or step.value[step.size - 1] != 0:
                return 0
            elif step.operation == ISO:
                if not read_iso(step.value + 4, step.size - 5, &number):
                    return 0
            elif not read_javascript(step.value + 4, step.size - 5, &number):
                return 0
            cell.place, cell.size = 1, 8
            put64(cell.inline, number)
        elif step.operation == EPOCH:
            if step.kind == DOUBLE:
                memcpy(&real, step.value, 8)
            elif step.kind == INT32:
                real = little32(step.value)
            elif step.kind == INT64 and -EXACT <= little64(step.value) <= EXACT:
                real = <double> little64(step.value)
            else:
                return 0
            if not microseconds_of(real, MICROSECONDS // step.per_second, &number) or not -EXACT <= number <= EXACT:
                return 0
            if number < FIRST_SECOND * MICROSECONDS or number >= (LAST_SECOND + 1) * MICROSECONDS:
                return 0
            cell.place, cell.size = 1, 8
            put64(cell.inline, number - EPOCH_SECONDS * MICROSECONDS)
        elif step.operation == NUMBER:
            if step.kind == INT32:
                number = little32(step.value)
            elif step.kind == INT64:
                number = little64(step.value)
            elif step.kind == DOUBLE and not step.sized:
                memcpy(&real, step.value, 8)
                if not (-EXACT <= real <= EXACT) or real != floor(real):
                    return 0
                number = <int64_t> real
            else:
                return 0
            if step.has_none and number == step.none:
                return 1
            if number < step.least or number > step.most:
                return 0
            cell.place, cell.size = 1, step.width
            if step.width == 2:
                put16(cell.inline, <int16_t> number)
            elif step.width == 4:
                put32(cell.inline, <int32_t> number)
            else:
                put64(cell.inline, number)
        elif step.operation == REAL:
            if step.kind != DOUBLE:
                return 0
            memcpy(&real, step.value, 8)
            if real != real:
                return 0
            memcpy(&number, &real, 8)
            cell.place, cell.size = 1, 8
            put64(cell.inline, number)
        elif step.operation == BYTES:
            if step.kind != BINARY or step.value[4] != 0:
                return 0
            cell.place, cell.source, cell.size = 0, step.value + 5, <int32_t> (step.size - 5)
        elif step.operation == SERIALIZED:
            if step.kind == BINARY and step.size > 5 and step.value[4] == 0 and step.value[5] & 0xC0 == 0x80:
                cell.place, cell.source, cell.size = 0, step.value + 5, <int32_t> (step.size - 5)  # no UTF-8
            elif text_of(step, &text, &size) and is_json_or_longer(text, size):
                cell.place, cell.source, cell.size = 0, text, <int32_t> size
            else:
                return 0
        elif step.operation == KOMBU_JSON:
            if not is_of_json(&self.steps[step.beside]):
                return 0
            cell.place = 2
            cell.offset = self.scratch.used
            if not write_python_json(self.scratch, step.kind, step.value, step.size):
                return 0
            if self.scratch.used - cell.offset > LARGEST:
                return 0
            cell.size = <int32_t> (self.scratch.used - cell.offset)
        elif step.operation == OBJECT_ID_DIGITS:
            if not text_of(step, &text, &size) or (step.longest and size > step.longest):
                return 0
            if size == 2 * OBJECT_ID_SIZE:
                return not (step.longest and UUID_TEXT > step.longest) and self._digits(cell, text)
            if size and (text[0] == 48 or text[0] == 45):
                return 0  # the digits of a UUID that begins with zeros are written otherwise
            cell.place, cell.source, cell.size = 0, text, <int32_t> size
        elif step.operation == BOOLEAN:
            if step.kind != FLAG or step.value[0] > 1:
                return 0
            cell.place, cell.size = 0, 1
            cell.source = step.value
        elif step.operation == TEXTS:
            return self._texts(step, cell)
        elif step.operation == JSON or step.operation == STRINGIFIED:
            cell.place = 2
            cell.offset = self.scratch.used
            self.scratch.append(b"\x01", 1)
            if not write_json(
                self.scratch, step.kind, step.value, step.size, None if step.shape is NULL else <Shape> step.shape
            ):
                return 0
            if self.scratch.used - cell.offset > LARGEST:
                return 0
            if step.operation == STRINGIFIED and has_long_number(
                self.scratch.data + cell.offset, self.scratch.used - cell.offset
            ):
                return 0
            cell.size = <int32_t> (self.scratch.used - cell.offset)
        elif step.operation == REFERENCE:
            found = <bytes> step.prefix
            if not text_of(step, &text, &size) or size != <size_t> PyBytes_GET_SIZE(found) + HEX_DIGITS:
                return 0
            if memcmp(text, PyBytes_AS_STRING(found), size - HEX_DIGITS) != 0:
                return 0
            cell.place, cell.size = 1, UUID_SIZE
            return read_hex(text + size - HEX_DIGITS, UUID_SIZE, cell.inline)
        elif step.operation == OWN_ID:
            return step.kind == self.id_kind and step.size == self.id_size and (
                memcmp(step.value, self.id_value, step.size) == 0
            )
        elif step.operation == TENANT:
            entry = (<Memo> step.memo).find(step.kind, step.value, step.size)
            if entry is None:
                return 0
            found = <bytes> entry[1]
            self.tenant = <const uint8_t*> PyBytes_AS_STRING(found)
            self.tenant_size = PyBytes_GET_SIZE(found)
        elif step.operation == LITERAL:
            return 1  # the rebuilt document has it, or is another one
        elif step.operation == PICKLED_JOB or step.operation == DUE:
            return 1  # they are read together
        if step.others is not NULL:
            for other in <tuple> step.others:
                self.cells[<int> other] = cell[0]
        return 1

    cdef int _digits(self, Cell* cell, const uint8_t* text) except -1:
        """Make the text of a UUID of the digits of an ObjectId, after eight zeros; 0 if they are none."""
        cdef uint8_t value[OBJECT_ID_SIZE]
        if not read_hex(text, OBJECT_ID_SIZE, value):
            return 0
        cell.place, cell.size = 1, UUID_TEXT
        memcpy(cell.inline, b"00000000-", 9)
        memcpy(cell.inline + 9, text, 4)
        cell.inline[13] = cell.inline[18] = cell.inline[23] = 45
        memcpy(cell.inline + 14, text + 4, 4)
        memcpy(cell.inline + 19, text + 8, 4)
        memcpy(cell.inline + 24, text + 12, 12)
        return 1

    cdef int _texts(self, Step* step, Cell* cell) except -1:
        cdef const uint8_t* p = step.value + 4
        cdef const uint8_t* end = step.value + step.size - 1
        cdef int32_t count = 0
        cdef size_t digits, place, size
        cdef int32_t rest
        cdef uint8_t number[16]
        cdef uint8_t head[20]
        if step.kind != ARRAY or end[0] != 0:
            return 0
        cell.place = 2
        cell.offset = self.scratch.used
        if end == p:
            memset(head, 0, 12)
            put32(head + 8, TEXT_OID)
            self.scratch.append(head, 12)
            cell.size = 12
            return 1
        self.scratch.append(head, 20)
        while p < end:
            digits = _index_text(count, number)
            if <size_t> (end - p) < 2 + digits + 5 or p[0] != TEXT or memcmp(p + 1, number, digits + 1) != 0:
                return 0
            p += 2 + digits
            rest = little32(p)
            if rest < 1 or <int64_t> rest + 4 > end - p or p[3 + rest] != 0:
                return 0
            size = rest - 1
            if (step.longest and size > step.longest) or not is_text(p + 4, size):
                return 0
            place = self.scratch.used
            self.scratch.reserve(4 + size)
            put32(self.scratch.data + place, <int32_t> size)
            memcpy(self.scratch.data + place + 4, p + 4, size)
            self.scratch.used += 4 + size
            p += 4 + rest
            count += 1
        put32(self.scratch.data + cell.offset, 1)
        put32(self.scratch.data + cell.offset + 4, 0)
        put32(self.scratch.data + cell.offset + 8, TEXT_OID)
        put32(self.scratch.data + cell.offset + 12, count)
        put32(self.scratch.data + cell.offset + 16, 1)
        cell.size = <int32_t> (self.scratch.used - cell.offset)
        return 1

    cdef int _references(self) except -1:
        """Look at what is known of the references; note those that are not known."""
        cdef int index
        cdef Step* step
        for index in range(self.count):
            step = &self.steps[index]
            if step.operation != REFERENCE or not step.seen or step.reference < 0:
                continue
            if self.cells[step.column].size < 0:
                continue
            answer = self.answers[step.reference] if self.answers else True
            if answer is True:
                continue
            if answer is False:
                return 0
            key = PyBytes_FromStringAndSize(<char*> self.cells[step.column].inline, UUID_SIZE) + (
                PyBytes_FromStringAndSize(<char*> self.tenant, self.tenant_size)
            )
            leads = (<dict> answer).get(key)
            if leads is None:
                if self.asked is None:
                    self.asked = []
                self.asked.append((step.reference, key))
            elif not leads:
                return 0
        return 1

    # -- completing

    cdef int _decide(self) except -1:
        """Find the tables of which the document makes a row."""
        cdef int index
        if self.outlines is not None:
            self.makes = self.outlines.answer[0]
            return 1
        self.makes = 1
        for index in range(1, self.table_count):
            if self._is_made(index):
                self.makes |= 1 << index
        if self.expected >= 0 and not self.makes >> self.expected & 1:
            return 0
        if self.excerpt_memo is not None and (self.makes ^ <int> self.excerpt[2]) & self.excerpt_tables:
            return 0
        if self.trigger_table >= 0 and self.makes >> self.trigger_table & 1:
            return self._complete_trigger()
        return 1

    cdef int _complete_trigger(self) except -1:
        """Evaluate the cron line, and fill the kind of the trigger and what goes with it."""
        cdef Cell* cell
        cdef bytes kind = None
        cdef int64_t begin, end
        if self.default_dialect is not None and self.cells[self.cron_line].size >= 0:
            cell = &self.cells[self.cron_dialect]
            if cell.size < 0:
                cell.place, cell.source = 0, <const uint8_t*> PyBytes_AS_STRING(self.default_dialect)
                cell.size = <int32_t> PyBytes_GET_SIZE(self.default_dialect)
            self.key.used = 0
            for column in (self.cron_dialect, self.cron_line, self.cron_zone):
                cell = &self.cells[<int> column]
                if cell.size >= 0:
                    if cell.place != 0:
                        return 0
                    self.key.append(b"\0", 1)
                    self.key.append(cell.source, cell.size)
            if self.evaluable.find(0, self.key.data, self.key.used) is None:
                return 0
        for column, word in self.trigger_causes:
            if self.cells[<int> column].size >= 0:
                if kind is not None:
                    return 0
                kind = <bytes> word
        if kind is None:
            return 0
        cell = &self.cells[self.trigger_kind]
        cell.place, cell.source = 0, <const uint8_t*> PyBytes_AS_STRING(kind)
        cell.size = <int32_t> PyBytes_GET_SIZE(kind)
        cell = &self.cells[self.trigger_anchor]
        if kind != b"interval":
            cell.size = -1
        elif cell.size < 0:
            cell.place, cell.source = 0, <const uint8_t*> PyBytes_AS_STRING(self.default_anchor)
            cell.size = <int32_t> PyBytes_GET_SIZE(self.default_anchor)
        if kind == b"event":
            for column in self.event_columns:
                self.cells[<int> column].size = -1
        if self.cells[self.trigger_start].size < 0 or self.cells[self.trigger_end].size < 0:
            return 1
        if self.cells[self.trigger_start].place != 1 or self.cells[self.trigger_end].place != 1:
            return 0
        begin, end = get64(self.cells[self.trigger_start].inline), get64(self.cells[self.trigger_end].inline)
        return end > begin

    cdef int _complete(self) except -1:
        """Fill the columns that follow from others: id, tenant, source id; a run's attempt and duration."""
        cdef int index, first
        cdef Cell* cell
        cdef int64_t seconds
        cdef uint8_t* text
        for index in range(self.table_count):
            if not self.makes >> index & 1:
                continue
            first = self.first_column[index]
            self._identify_row(index, &self.cells[first])
            cell = &self.cells[first + 1]
            cell.place, cell.source, cell.size = 0, self.tenant, <int32_t> self.tenant_size
            cell = &self.cells[first + 3]
            cell.place, cell.source, cell.size = 0, self.source_id, <int32_t> self.source_id_size
        for index in range(self.table_count):
            if self.makes >> index & 1:
                for column, parent in self.parents[index]:  # the id of a table without a row is null
                    if self.cells[<int> column].size < 0:
                        self.cells[<int> column] = self.cells[self.first_column[<int> parent]]
        if self.id_time >= 0:
            if self.id_kind != OBJECT_ID:
                return 0
            seconds = <int64_t> <uint32_t> get32(self.id_value)
            cell = &self.cells[self.id_time]
            cell.place, cell.size = 1, 8
            put64(cell.inline, (seconds - EPOCH_SECONDS) * MICROSECONDS)
        if self.id_uuid >= 0:
            if self.id_kind != OBJECT_ID:
                return 0
            cell = &self.cells[self.id_uuid]
            cell.place, cell.size = 1, UUID_SIZE
            memset(cell.inline, 0, UUID_SIZE - OBJECT_ID_SIZE)
            memcpy(cell.inline + UUID_SIZE - OBJECT_ID_SIZE, self.id_value, OBJECT_ID_SIZE)
        if self.id_plain >= 0:
            if self.id_kind != TEXT or (self.id_longest and self.source_id_size > self.id_longest):
                return 0
            cell = &self.cells[self.id_plain]
            cell.place, cell.source, cell.size = 0, self.source_id, <int32_t> self.source_id_size
        if self.id_text >= 0:
            if self.id_longest and self.source_id_size > self.id_longest:
                return 0
            cell = &self.cells[self.id_text]
            cell.place = 0
            if self.id_kind == OBJECT_ID:
                cell.source, cell.size = self.source_text + 18, 24
            else:
                cell.source, cell.size = self.source_id, <int32_t> self.source_id_size
        self._choose()
        return self._complete_run() if self.run and self.makes >> <int> self.table_of[<int> self.run[0]] & 1 else 1

    cdef int _choose(self) except -1:
        """Fill the columns whose value the first case gives that applies."""
        cdef Cell* cell
        for column, cases in self.choices:
            for place, equals, given in <tuple> cases:
                if <int> place < 0 or self._holds(&self.steps[<int> place], equals):
                    cell = &self.cells[<int> column]
                    cell.place, cell.source = 0, <const uint8_t*> PyBytes_AS_STRING(given)
                    cell.size = <int32_t> PyBytes_GET_SIZE(given)
                    break
        return 0

    cdef bint _holds(self, Step* step, equals):
        """Whether a field holds this value (BSON type and bytes; None: any)."""
        if not step.seen or step.kind == NULL_VALUE:
            return False
        return equals is None or (
            <size_t> PyBytes_GET_SIZE(equals) == step.size + 1
            and <uint8_t> PyBytes_AS_STRING(equals)[0] == step.kind
            and memcmp(PyBytes_AS_STRING(equals) + 1, step.value, step.size) == 0
        )

    cdef int _identify_row(self, int table, Cell* cell) except -1:
        cell.place, cell.size = 1, UUID_SIZE
        if self.keeps[table] and kept_uuid(self.source_id, self.source_id_size, cell.inline):
            return 0
        name = (
            <bytes> self.namespaces[table]
            + PyBytes_FromStringAndSize(<char*> self.tenant, self.tenant_size)
            + self.collection
            + PyBytes_FromStringAndSize(<char*> self.source_id, self.source_id_size)
        )
        digest = <bytes> sha1(name, usedforsecurity=False).digest()
        memcpy(cell.inline, PyBytes_AS_STRING(digest), UUID_SIZE)
        cell.inline[6] = cell.inline[6] & 0x0F | 0x50
        cell.inline[8] = cell.inline[8] & 0x3F | 0x80
        return 0

    cdef int _complete_run(self) except -1:
        cdef int trigger, slot, attempt, started, finished, duration
        cdef int64_t begin, end
        trigger, slot, attempt, started, finished, duration = self.run
        if self.cells[trigger].size >= 0 and self.cells[slot].size >= 0 and self.cells[attempt].size < 0:
            self.cells[attempt].place, self.cells[attempt].size = 1, 4
            put32(self.cells[attempt].inline, 1)
        if self.cells[started].size < 0 or self.cells[finished].size < 0:
            return 1
        if self.cells[started].place != 1 or self.cells[finished].place != 1:
            return 0
        begin, end = get64(self.cells[started].inline), get64(self.cells[finished].inline)
        if end < begin:
            return 0
        if self.cells[duration].size < 0:
            self.cells[duration].place, self.cells[duration].size = 1, 8
            put64(self.cells[duration].inline, (end - begin) // 1000)
        return 1

    cdef bint _is_made(self, int table):
        for column in <tuple> self.made_by[table]:
            if self.cells[<int> column].size >= 0:
                return True
        return False

    cdef bint _needs(self, int table):
        """Whether a row has all that it needs."""
        for column in <tuple> self.needed[table]:
            if self.cells[<int> column].size < 0:
                return False
        return True

    cdef int _lay(self, TableRows table, int position) except -1:
        """Write the row."""
        cdef int first = self.first_column[position], stop = self.first_column[position + 1], index
        cdef size_t room = 2 + 4 * (stop - first)
        cdef uint8_t* p
        cdef uint8_t* begin
        cdef Cell* cell
        for index in range(first, stop):
            if self.cells[index].size > 0:
                room += self.cells[index].size
        table.data.reserve(room)
        begin = table.data.data
        p = begin + table.data.used
        put16(p, <int16_t> (stop - first))
        p += 2
        for index in range(first, stop):
            cell = &self.cells[index]
            put32(p, cell.size)
            p += 4
            self.laid[index].size = cell.size
            self.laid[index].offset = p - begin
            if cell.size > 0:
                if cell.place == 0:
                    memcpy(p, cell.source, cell.size)
                elif cell.place == 1:
                    memcpy(p, cell.inline, cell.size)
                else:
                    memcpy(p, self.scratch.data + cell.offset, cell.size)
                p += cell.size
        table.data.used = p - begin
        return 0

    # -- proving

    cdef int _is_proved(self, Rows rows, const uint8_t* raw, size_t size) except -1:
        """Whether the document that the rows encode to has the bytes of the document."""
        cdef TableRows first = <TableRows> rows.tables[0]
        cdef const uint8_t* found = first.data.data + self.laid[3].offset
        cdef size_t length = self.laid[3].size
        cdef uint8_t head[4]
        cdef uint8_t value[12]
        cdef Buffer back = self.back
        cdef size_t start
        if self.outlines is not None:
            return self._gives_back_json(rows)
        if self.excerpt_memo is not None and not self._holds_excerpt(rows):
            return 0
        back.used = 0
        back.reserve(size + 64)
        memcpy(head, &size, 4)
        back.append(head, 4)
        if length and found[0] == 123:
            if length != 45 or not read_hex(found + 18, 12, value):
                return 0
            back.append(b"\x07_id\0", 5)
            back.append(value, 12)
        else:
            back.append(b"\x02_id\0", 5)
            self._put_text(found, length)
        start = back.used
        if not self.is_reordered and not self.unknown_count:
            if self._write(rows, 0, self.count) < 0:
                return 0
            back.append(b"\0", 1)
            if back.used == size and memcmp(back.data, raw, size) == 0:
                return 1
            if self.extra < 0:
                return 0
            back.used = start
        if not self._write_in_order(rows):
            return 0
        back.append(b"\0", 1)
        return back.used == size and memcmp(back.data, raw, size) == 0 and self._knows_remainder()

    cdef int _gives_back_json(self, Rows rows) except -1:
        """Whether the JSON in holes comes back from the rows byte for byte, as all else does by its outline."""
        cdef int column, operation, first
        cdef Hole* hole
        cdef const uint8_t* cell
        for column, operation, first, _, _ in <tuple> self.outlines.answer[2]:
            if operation != FREE_JSON:
                continue
            hole = &self.outlines.holes[first]
            cell = (<TableRows> rows.tables[<int> self.table_of[column]]).data.data + self.laid[column].offset
            self.back.used = 0
            if write_bson(
                self.back, cell + 1, self.laid[column].size - 1, None, hole.kind, hole.value, hole.size
            ) != hole.kind:
                return 0
            if self.back.used != hole.size or memcmp(self.back.data, hole.value, hole.size) != 0:
                return 0
        return 1

    cdef int _holds_excerpt(self, Rows rows) except -1:
        """Whether the rows hold what was derived: then the fields of the excerpt are written as they are."""
        cdef Py_ssize_t place
        cdef int table
        cdef int32_t size
        cdef bytes found
        for place, column in enumerate(self.excerpt_columns):
            table = self.table_of[<int> column]
            if not self.made >> table & 1 or <int> column == self.first_column[table]:
                continue  # no row; or the id, which is the computed one
            derived = (<tuple> self.excerpt[1])[place]
            size = self.laid[<int> column].size
            if derived is None or size < 0:
                if not (derived is None and size < 0):
                    return 0
                continue
            found = <bytes> derived
            if PyBytes_GET_SIZE(found) != size or memcmp(
                PyBytes_AS_STRING(found),
                (<TableRows> rows.tables[table]).data.data + self.laid[<int> column].offset,
                size,
            ) != 0:
                return 0
        return 1

    cdef int _put_text(self, const uint8_t* text, size_t size) except -1:
        cdef int32_t length = <int32_t> size + 1
        self.back.reserve(5 + size)
        memcpy(self.back.data + self.back.used, &length, 4)
        memcpy(self.back.data + self.back.used + 4, text, size)
        self.back.data[self.back.used + 4 + size] = 0
        self.back.used += 5 + size
        return 0

    cdef int _put_head(self, uint8_t kind, Step* step) except -1:
        self.back.reserve(1 + step.key_size)
        self.back.data[self.back.used] = kind
        memcpy(self.back.data + self.back.used + 1, step.key, step.key_size)
        self.back.used += 1 + step.key_size
        return 0

    cdef int _write_in_order(self, Rows rows) except -1:
        """Write fields in the order in which they were read, and mark those that the rows do not give back as they are.

        Return 0 for a document for the Python codec.
        """
        cdef int place, index, next_one, written
        cdef size_t start
        cdef Step* step
        for index in range(self.count):
            self.steps[index].mark = CARRIED
        for place in range(self.ordered):
            index = self.order[place]
            if index < 0:
                self.back.append(self.unknown[-index - 1], self.unknown_size[-index - 1])
                continue
            step = &self.steps[index]
            written = self._write(rows, index, step.stop if step.operation == GROUP else index + 1)
            if written < 0:
                return 0
            if written == 0 and step.kind == NULL_VALUE and step.operation != OWN_ID:
                step.mark = NULL_ADDED
                self._put_head(NULL_VALUE, step)
        index = 0
        while index < self.count:
            step = &self.steps[index]
            next_one = step.stop if step.operation == GROUP else index + 1
            if not step.seen:
                start = self.back.used
                written = self._write(rows, index, next_one)
                if written < 0:
                    return 0
                if written:
                    step.mark = ABSENT
                    self.back.used = start
            index = next_one
        return 1

    cdef int _knows_remainder(self) except -1:
        """Find the remainder of what was marked and of the unknown elements; 0 if it is for the Python codec."""
        cdef int index
        cdef uint8_t mark
        cdef uint16_t place
        self.key.used = 0
        for index in range(self.count):
            if self.steps[index].mark != CARRIED:
                mark, place = <uint8_t> self.steps[index].mark, <uint16_t> index
                self.key.append(&mark, 1)
                self.key.append(&place, 2)
        if self.key.used == 0 and self.unknown_count == 0:
            return 1
        if self.extra < 0:
            return 0
        mark = CARRIED
        self.key.append(&mark, 1)
        for index in range(self.unknown_count):
            self.key.append(self.unknown[index], self.unknown_size[index])
            if self.key.used > LONGEST_EXCERPT:
                return 0
        self.remainder = self.remainder_memo.find(0, self.key.data, self.key.used)
        return self.remainder is not None

    cdef int _write(self, Rows rows, int first, int stop) except -2:
        """Write fields from the rows; return how many were written, -1 if a cell stands for no value."""
        cdef int index = first, written = 0, inner
        cdef size_t place
        cdef int32_t length
        cdef Step* step
        while index < stop:
            step = &self.steps[index]
            if step.operation == GROUP:
                place = self.back.used
                self._put_head(DOCUMENT, step)
                self.back.append(b"\0\0\0\0", 4)
                inner = self._write(rows, index + 1, step.stop)
                if inner < 0:
                    return -1
                if inner:
                    written += 1
                    self.back.append(b"\0", 1)
                    length = <int32_t> (self.back.used - place - 1 - step.key_size)
                    memcpy(self.back.data + place + 1 + step.key_size, &length, 4)
                else:
                    self.back.used = place
                index = step.stop
                continue
            inner = self._write_field(rows, step)
            if inner < 0:
                return -1
            written += inner
            index += 1
        return written

    cdef int _write_field(self, Rows rows, Step* step) except -2:
        cdef const uint8_t* cell
        cdef int32_t size
        cdef TableRows table
        cdef bytes text
        cdef tuple entry
        cdef uint8_t buffer[40]
        cdef size_t place
        cdef int64_t number
        cdef int32_t small
        cdef double real
        cdef uint8_t kind
        if step.operation == LITERAL:
            text = <bytes> step.literal
            self.back.append(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            return 1
        if step.operation == OWN_ID:
            table = <TableRows> rows.tables[0]
            cell, size = table.data.data + self.laid[3].offset, self.laid[3].size
            if size and cell[0] == 123:
                return 0
            self._put_head(TEXT, step)
            self._put_text(cell, size)
            return 1
        if step.operation == TENANT:
            table = <TableRows> rows.tables[0]
            self._put_head(TEXT, step)
            self._put_text(table.data.data + self.laid[1].offset, self.laid[1].size)
            return 1
        if step.operation == EXCERPT:
            if not step.seen:
                return 0
            self._put_head(step.kind, step)
            self.back.append(step.value, step.size)
            return 1
        if not self.made >> step.table & 1:
            return 0
        table = <TableRows> rows.tables[step.table]
        cell, size = table.data.data + self.laid[step.column].offset, self.laid[step.column].size
        if size < 0:
            return 0 if step.null_as is NULL else self._put_null(step)
        if step.default is not NULL and not step.written:
            text = <bytes> step.default
            if PyBytes_GET_SIZE(text) == size and memcmp(PyBytes_AS_STRING(text), cell, size) == 0:
                if step.null_as is NULL or PyBytes_AS_STRING(<bytes> step.null_as)[0] != NULL_VALUE:
                    return 0  # a number that stands for none is not what is written of a default
                return self._put_null(step)
        if not step.seen or step.kind == NULL_VALUE:
            return -1  # a constant, or a default that is written: not in the document
        if step.operation == MEMO:
            entry = <tuple> step.entry
            text = <bytes> entry[1]
            if PyBytes_GET_SIZE(text) != size or memcmp(PyBytes_AS_STRING(text), cell, size) != 0:
                return -1
            text = <bytes> entry[2]
            self._put_head(PyBytes_AS_STRING(text)[0], step)
            self.back.append(PyBytes_AS_STRING(text) + 1, PyBytes_GET_SIZE(text) - 1)
        elif step.operation == PLAIN_TEXT or step.operation == TRIMMED_TEXT:
            self._put_head(TEXT, step)
            self._put_text(cell, size)
        elif step.operation == ISO:
            self._put_head(TEXT, step)
            self._put_text(buffer, put_iso(get64(cell), buffer))
        elif step.operation == JAVASCRIPT:
            self._put_head(TEXT, step)
            self._put_text(buffer, put_javascript(get64(cell), buffer))
        elif step.operation == BSON_DATE:
            number = floored(get64(cell), 1000) + EPOCH_SECONDS * 1000
            self._put_head(DATE, step)
            self.back.append(&number, 8)
        elif step.operation == EPOCH:
            real = <double> (get64(cell) + EPOCH_SECONDS * MICROSECONDS) / <double> (MICROSECONDS // step.per_second)
            if step.number == DOUBLE or real != floor(real):
                self._put_head(DOUBLE, step)
                self.back.append(&real, 8)
            else:
                self._put_number(step, <int64_t> real)
        elif step.operation == NUMBER:
            self._put_number(step, get16(cell) if size == 2 else get32(cell) if size == 4 else get64(cell))
        elif step.operation == REAL:
            number = get64(cell)
            self._put_head(DOUBLE, step)
            self.back.append(&number, 8)
        elif step.operation == BYTES:
            self._put_head(BINARY, step)
            self.back.append(&size, 4)
            self.back.append(b"\0", 1)
            self.back.append(cell, size)
        elif step.operation == SERIALIZED:
            self._put_head(step.kind, step)
            if step.kind == TEXT:
                self._put_text(cell, size)
            else:
                self.back.append(&size, 4)
                self.back.append(b"\0", 1)
                self.back.append(cell, size)
        elif step.operation == KOMBU_JSON:
            # the cell was made of this value, and of no other one is the same text made
            self._put_head(step.kind, step)
            self.back.append(step.value, step.size)
        elif step.operation == OBJECT_ID_DIGITS:
            self._put_head(TEXT, step)
            if step.size - 5 == <size_t> size:
                self._put_text(cell, size)
            else:
                memcpy(buffer, cell + 9, 4)
                memcpy(buffer + 4, cell + 14, 4)
                memcpy(buffer + 8, cell + 19, 4)
                memcpy(buffer + 12, cell + 24, 12)
                self._put_text(buffer, 2 * OBJECT_ID_SIZE)
        elif step.operation == BOOLEAN:
            self._put_head(FLAG, step)
            self.back.append(cell, 1)
        elif step.operation == TEXTS:
            self._put_texts(step, cell, size)
        elif step.operation == JSON or step.operation == STRINGIFIED:
            place = self.back.used
            self._put_head(0, step)
            kind = write_bson(
                self.back,
                cell + 1,
                size - 1,
                None if step.shape is NULL else <Shape> step.shape,
                step.kind,
                step.value,
                step.size,
            )
            if kind == 0:
                return -1
            self.back.data[place] = kind
        elif step.operation == PICKLED_JOB:
            self._put_head(BINARY, step)
            place = self.back.used
            self.back.append(b"\0\0\0\0\0", 5)
            if not read_metadata(self.back, cell, size):
                return -1
            small = <int32_t> (self.back.used - place - 5)
            memcpy(self.back.data + place, &small, 4)
        elif step.operation == DUE:
            number = get64(cell)
            small = <int32_t> (number - floored(number, MICROSECONDS) * MICROSECONDS)
            # as the library adds the fraction to whole seconds, rounding included
            real = <double> (floored(number, MICROSECONDS) + EPOCH_SECONDS) + <double> small / 1000000.0
            self._put_head(DOUBLE, step)
            self.back.append(&real, 8)
        elif step.operation == REFERENCE:
            text = <bytes> step.prefix
            place = PyBytes_GET_SIZE(text)
            self._put_head(TEXT, step)
            small = <int32_t> place + HEX_DIGITS + 1
            write_hex(cell, UUID_SIZE, buffer)
            self.back.append(&small, 4)
            self.back.append(PyBytes_AS_STRING(text), place)
            self.back.append(buffer, HEX_DIGITS)
            self.back.append(b"\0", 1)
        else:
            return -1
        return 1

    cdef int _put_null(self, Step* step) except -2:
        """Write what stands for a column that holds nothing, or the default."""
        cdef bytes text = <bytes> step.null_as
        self._put_head(PyBytes_AS_STRING(text)[0], step)
        self.back.append(PyBytes_AS_STRING(text) + 1, PyBytes_GET_SIZE(text) - 1)
        return 1

    cdef int _put_number(self, Step* step, int64_t number) except -1:
        cdef int32_t small = <int32_t> number
        cdef double real = <double> number
        if step.number == DOUBLE:
            self._put_head(DOUBLE, step)
            self.back.append(&real, 8)
        elif step.number == INT32 and INT32_MIN <= number <= INT32_MAX:
            self._put_head(INT32, step)
            self.back.append(&small, 4)
        else:
            self._put_head(INT64, step)
            self.back.append(&number, 8)
        return 0

    cdef int _put_texts(self, Step* step, const uint8_t* cell, int32_t size) except -1:
        cdef size_t place, digits
        cdef int32_t count, index, length
        cdef uint8_t number[16]
        self._put_head(ARRAY, step)
        place = self.back.used
        self.back.append(b"\0\0\0\0", 4)
        count = 0 if size == 12 else get32(cell + 12)
        cell += 20
        for index in range(count):
            digits = _index_text(index, number)
            self.back.append(b"\x02", 1)
            self.back.append(number, digits + 1)
            length = get32(cell)
            self._put_text(cell + 4, length)
            cell += 4 + length
        self.back.append(b"\0", 1)
        length = <int32_t> (self.back.used - place)
        memcpy(self.back.data + place, &length, 4)
        return 0


cdef size_t _index_text(int32_t index, uint8_t* out) noexcept:
    """Write the name of an array's element, with a zero byte; return its digits."""
    cdef uint8_t reversed_[12]
    cdef size_t digits = 0, i
    while True:
        reversed_[digits] = <uint8_t> (48 + index % 10)
        digits += 1
        index //= 10
        if index == 0:
            break
    for i in range(digits):
        out[i] = reversed_[digits - 1 - i]
    out[digits] = 0
    return digits
