"""JSON text in PostgreSQL's own spelling (jsonb), from BSON and back.

What a value means in JSON is defined by ``migrator.values.jsonb`` and ``migrator.sources.shapes``; here is the part of
it that leads back to the same bytes of BSON. Whatever is not of that part is for the Python codec: a type that JSON
lacks, a number that jsonb spells in another way or gives back as another type, a text with NUL, a member that its shape
does not know, members in another order than that of the shape.

No byte after the size that a caller gives is read: each length in BSON is checked before it is used.

This second writer of JSON stays while a measurement shows its worth: Python took 4 times as long for the same values
(``json-text`` and ``json-python`` in ``benchmarks/results/codec.md``, made by ``benchmarks/codec.py``).
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.math cimport fabs, signbit
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memchr, memcmp, memcpy, strlen

cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind) except NULL
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0
    int Py_DTSF_ADD_DOT_0


# The types of BSON that JSON has.
cdef enum:
    DOUBLE = 0x01
    TEXT = 0x02
    DOCUMENT = 0x03
    ARRAY = 0x04
    FLAG = 0x08
    NULL_VALUE = 0x0A
    INT32 = 0x10
    INT64 = 0x12


# What a node of a shape takes.
cdef enum:
    TAKES_NULL = 1
    TAKES_FLAG = 2
    TAKES_INT = 4
    TAKES_DOUBLE = 8
    TAKES_TEXT = 16
    TAKES_WORDS = 32  # of the texts, those listed
    TAKES_OTHERS = 64  # of the texts, those that are not listed
    TAKES_MOMENT = 128  # of the texts, times of ISO 8601
    TAKES_LIST = 256
    TAKES_MAP = 512  # documents with any keys
    TAKES_MEMBERS = 1024  # documents with the keys listed
    TAKES_ANY = 2048

cdef enum:
    DEEPEST = 60
    MOST_MEMBERS = 16384  # of all open documents together
    LONGEST_NUMBER = 40
    SORTED_BY_INSERTION = 12
    SCRATCH_KEPT = 1 << 20
    MOST_COMPARED = 64  # members of a document whose keys are compared with each other

cdef struct Word:
    const char* text
    size_t length

cdef struct Member:
    const char* head  # in jsonb text: the quoted name, a colon and a space; the name follows the first quote
    size_t length  # of the name
    int by_rank  # the member that jsonb puts at this position
    bint is_required
    Node* node

cdef struct Node:
    int accepts
    int64_t least
    int64_t most
    Node* item  # of a list, or of the values of a map
    Member* members
    int count
    Word* words
    int word_count
    bint is_free  # it holds documents that keep the order of their source

# A member of a document that is open.
cdef struct Entry:
    const uint8_t* key
    const uint8_t* value
    size_t size
    size_t start
    size_t end
    uint32_t key_length
    int other  # position in the source; then the entry that stands at this position in it
    uint8_t kind

cdef Entry[MOST_MEMBERS] entries
cdef size_t entries_used = 0


cdef class Buffer:
    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int grow(self, size_t more) except -1:
        cdef size_t wanted = self.used + more
        cdef size_t allotted = self.allotted * 2 if self.allotted * 2 > wanted else wanted + 256
        cdef uint8_t* data = <uint8_t*> PyMem_Realloc(self.data, allotted)
        if data is NULL:
            raise MemoryError
        self.data, self.allotted = data, allotted
        return 0


cdef Buffer scratch = Buffer()


cdef class Shape:
    """What a value must be, compiled from the description that ``migrator.sources.shape_description`` makes."""


def compile_shape(description) -> Shape:
    """Return the shape; raises ``ValueError`` for a description that is none."""
    cdef Shape shape = Shape()
    shape.kept = []
    shape.node = _compiled(shape, description)
    return shape


cdef void* _room(Shape shape, size_t size) except NULL:
    """Return room that lives as long as the shape does, filled with zeros."""
    room = bytearray(size or 1)
    shape.kept.append(room)
    return <void*> <char*> room


cdef const char* _kept(Shape shape, bytes text) except NULL:
    shape.kept.append(text)
    return text


cdef Node* _compiled(Shape shape, description) except NULL:
    cdef Node* node = <Node*> _room(shape, sizeof(Node))
    _describe(shape, node, description)
    return node


cdef int _describe(Shape shape, Node* node, description) except -1:
    cdef Node* inner
    kind, *given = description
    if kind == "union":
        for part in given[0]:
            _describe(shape, node, part)
        return 0
    if kind in ("text", "words", "other words", "moment") and node.accepts & (
        TAKES_TEXT | TAKES_WORDS | TAKES_OTHERS | TAKES_MOMENT
    ) or kind in ("members", "map") and node.accepts & (TAKES_MEMBERS | TAKES_MAP):
        raise ValueError("a union of two texts, or of two documents")
    if kind == "any":
        node.accepts |= TAKES_ANY
        node.is_free = True
    elif kind == "null":
        node.accepts |= TAKES_NULL
    elif kind == "bool":
        node.accepts |= TAKES_FLAG
    elif kind == "double":
        node.accepts |= TAKES_DOUBLE
    elif kind == "text":
        node.accepts |= TAKES_TEXT
    elif kind == "moment":
        node.accepts |= TAKES_MOMENT
    elif kind == "int":
        node.accepts |= TAKES_INT
        node.least, node.most = given
    elif kind in ("words", "other words"):
        node.accepts |= TAKES_WORDS if kind == "words" else TAKES_OTHERS
        texts = [text.encode() for text in given[0]]
        node.words = <Word*> _room(shape, sizeof(Word) * len(texts))
        node.word_count = len(texts)
        for index, text in enumerate(texts):
            node.words[index].text = _kept(shape, text)
            node.words[index].length = len(text)
    elif kind in ("list", "map"):
        if node.item is not NULL:
            raise ValueError("a union of two lists, or of a list and a map")
        node.accepts |= TAKES_LIST if kind == "list" else TAKES_MAP
        node.item = _compiled(shape, given[0])
        node.is_free = node.is_free or kind == "map" or node.item.is_free
    elif kind == "members":
        node.accepts |= TAKES_MEMBERS
        names = [name.encode("ascii") for name, _, _ in given[0]]
        if len({*names}) < len(names) or any(name.translate(None, b'"\\') != name or min(name) < 32 for name in names):
            raise ValueError("names of members that are equal, or that jsonb escapes")
        node.members = <Member*> _room(shape, sizeof(Member) * len(names))
        node.count = len(names)
        for rank, name in enumerate(sorted(names, key=lambda name: (len(name), name))):
            node.members[rank].by_rank = names.index(name)
        for index, (_, described, is_required) in enumerate(given[0]):
            inner = _compiled(shape, described)
            node.members[index].node = inner
            node.members[index].is_required = is_required
            node.members[index].head = _kept(shape, b'"%b": ' % names[index])
            node.members[index].length = len(names[index])
            node.is_free = node.is_free or inner.is_free
    else:
        raise ValueError(f"no shape: {kind}")
    return 0


# -- BSON ------------------------------------------------------------------------------------------------------------


cdef inline int32_t _int32(const uint8_t* at) noexcept nogil:
    cdef int32_t value
    memcpy(&value, at, 4)
    return value


cdef inline int64_t _value_size(uint8_t kind, const uint8_t* value, size_t left) noexcept nogil:
    """Return the bytes of a value; -1 for a type that JSON lacks, or if more than ``left`` would be needed."""
    cdef int64_t size
    if kind == TEXT or kind == DOCUMENT or kind == ARRAY:
        if left < 5:
            return -1
        size = _int32(value)
        if kind == TEXT:
            size += 4
        if size < 5 or <size_t> size > left or value[size - 1]:
            return -1
        return size
    if kind == INT32:
        size = 4
    elif kind == INT64 or kind == DOUBLE:
        size = 8
    elif kind == FLAG:
        size = 1
    elif kind == NULL_VALUE:
        size = 0
    else:
        return -1
    return size if <size_t> size <= left else -1


cdef inline bint _next_element(const uint8_t** at, const uint8_t* end, Entry* found) noexcept nogil:
    """Read the element at ``at``, which is before ``end``; tell whether it is whole and of a type that JSON has."""
    cdef const uint8_t* key = at[0] + 1
    cdef const uint8_t* stop = <const uint8_t*> memchr(key, 0, end - key)
    cdef int64_t size
    if stop is NULL:
        return False
    found.kind = at[0][0]
    found.key = key
    found.key_length = <uint32_t> (stop - key)
    found.value = stop + 1
    size = _value_size(found.kind, stop + 1, end - stop - 1)
    if size < 0:
        return False
    found.size = <size_t> size
    at[0] = stop + 1 + size
    return True


cdef int _by_key(const void* left, const void* right) noexcept nogil:
    """Compare keys as jsonb does: the shorter one first, then by bytes."""
    cdef const Entry* one = <const Entry*> left
    cdef const Entry* other = <const Entry*> right
    if one.key_length != other.key_length:
        return -1 if one.key_length < other.key_length else 1
    return memcmp(one.key, other.key, one.key_length)


cdef int64_t _open_sorted(const uint8_t* value, size_t size) noexcept nogil:
    """Put the elements of a document on top of ``entries`` in the order of jsonb; return how many there are.

    -1: a type that JSON lacks, two equal keys, a key that cannot be copied as it is, broken BSON, or too many.
    """
    global entries_used
    cdef const uint8_t* at = value + 4
    cdef const uint8_t* end = value + size - 1
    cdef size_t base = entries_used, index, place
    cdef Entry* found
    cdef Entry held
    cdef size_t count
    while at < end:
        if entries_used >= MOST_MEMBERS:
            return -1
        found = &entries[entries_used]
        if not _next_element(&at, end, found):
            return -1
        # A key with $ may be that of a DBRef.
        if found.key_length and (found.key[0] == c"$" or _plain(found.key, found.key_length) != found.key_length):
            return -1
        found.other = <int> (entries_used - base)
        entries_used += 1
    count = entries_used - base
    if count <= SORTED_BY_INSERTION:
        for index in range(base + 1, base + count):
            place = index
            if _by_key(&entries[place - 1], &entries[place]) <= 0:
                continue
            held = entries[index]
            while place > base and _by_key(&entries[place - 1], &held) > 0:
                entries[place] = entries[place - 1]
                place -= 1
            entries[place] = held
    else:
        qsort(&entries[base], count, sizeof(Entry), _by_key)
    for index in range(base + 1, base + count):
        if _by_key(&entries[index - 1], &entries[index]) == 0:
            return -1
    return <int64_t> count


# -- texts -----------------------------------------------------------------------------------------------------------


cdef inline uint64_t _unusual(uint64_t eight) noexcept nogil:
    """Return not 0 if one of eight bytes is a control character, a quote, a backslash or not ASCII."""
    cdef uint64_t ones = 0x0101010101010101U, high = 0x8080808080808080U
    cdef uint64_t quotes = eight ^ (ones * 0x22), slashes = eight ^ (ones * 0x5C)
    return (eight | (eight - ones * 0x20) | (quotes - ones) | (slashes - ones)) & high


cdef inline size_t _sequence(const uint8_t* at, size_t left) noexcept nogil:
    """Return the bytes of the character at ``at``, which is not ASCII; 0 if it is not strict UTF-8."""
    cdef uint8_t first = at[0]
    if first < 0xC2 or first > 0xF4:
        return 0
    if left < 2 or at[1] & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if left < 3 or at[2] & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        # Neither a longer spelling than needed nor a surrogate.
        return 0 if (first == 0xE0 and at[1] < 0xA0) or (first == 0xED and at[1] > 0x9F) else 3
    if left < 4 or at[3] & 0xC0 != 0x80:
        return 0
    return 0 if (first == 0xF0 and at[1] < 0x90) or (first == 0xF4 and at[1] > 0x8F) else 4


cdef size_t _plain(const uint8_t* text, size_t size) noexcept nogil:
    """Return how many bytes from the beginning are strict UTF-8 that JSON does not escape."""
    cdef size_t at = 0, length
    cdef uint64_t eight
    cdef uint8_t byte
    while at < size:
        if at + 8 <= size:
            memcpy(&eight, text + at, 8)
            if not _unusual(eight):
                at += 8
                continue
        byte = text[at]
        if byte < 0x80:
            if byte < 0x20 or byte == c'"' or byte == c"\\":
                return at
            at += 1
        else:
            length = _sequence(text + at, size - at)
            if not length:
                return at
            at += length
    return at


cdef const char* HEX = b"0123456789abcdef"


cdef inline uint8_t _escape(uint8_t byte) noexcept nogil:
    """Return the letter of the short escape of a character; 0 if it has none."""
    if byte == c'"' or byte == c"\\":
        return byte
    if byte == c"\n":
        return c"n"
    if byte == c"\t":
        return c"t"
    if byte == c"\r":
        return c"r"
    if byte == c"\b":
        return c"b"
    if byte == c"\f":
        return c"f"
    return 0


cdef int _write_text(Buffer out, const uint8_t* text, size_t size) except -1:
    """Append a text as PostgreSQL spells it; return 0 for one with NUL or that is not UTF-8."""
    cdef size_t at = 0, run
    cdef uint8_t letter
    out.reserve(size + 2)
    out.data[out.used] = c'"'
    out.used += 1
    while True:
        run = _plain(text + at, size - at)
        out.reserve(run + 8)
        memcpy(out.data + out.used, text + at, run)
        out.used += run
        at += run
        if at == size:
            break
        if text[at] >= 0x80 or text[at] == 0:
            return 0
        letter = _escape(text[at])
        out.data[out.used] = c"\\"
        if letter:
            out.data[out.used + 1] = letter
            out.used += 2
        else:
            memcpy(out.data + out.used + 1, b"u00", 3)
            out.data[out.used + 4] = HEX[text[at] >> 4]
            out.data[out.used + 5] = HEX[text[at] & 15]
            out.used += 6
        at += 1
    out.data[out.used] = c'"'
    out.used += 1
    return 1


cdef inline int _digits(const uint8_t* at, int count) noexcept nogil:
    """Return the number of so many digits; -1 if another character is among them."""
    cdef int value = 0, index
    for index in range(count):
        if at[index] < c"0" or at[index] > c"9":
            return -1
        value = value * 10 + at[index] - c"0"
    return value


cdef inline int _days(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef bint _is_moment(const uint8_t* text, size_t size) noexcept nogil:
    """Whether ``times.parse_iso`` takes a text; some unusual ones that it takes are left to it."""
    cdef int year, month, day, hour, minute, second, offset
    cdef size_t at = 19
    if size < 20 or text[4] != c"-" or text[7] != c"-" or text[10] != c"T" or text[13] != c":" or text[16] != c":":
        return False
    year, month, day = _digits(text, 4), _digits(text + 5, 2), _digits(text + 8, 2)
    hour, minute, second = _digits(text + 11, 2), _digits(text + 14, 2), _digits(text + 17, 2)
    # In the first and the last year an offset may lead out of the calendar.
    if year < 2 or year > 9998 or month < 1 or month > 12 or day < 1 or day > _days(year, month):
        return False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    if text[at] == c".":
        at += 1
        while at < size and c"0" <= text[at] <= c"9":
            at += 1
        if at == 20 or at > 29:
            return False
    if at + 1 == size:
        return text[at] == c"Z"
    if at + 6 != size or text[at + 3] != c":" or (text[at] != c"+" and text[at] != c"-"):
        return False
    offset = _digits(text + at + 1, 2)
    minute = _digits(text + at + 4, 2)
    return 0 <= offset <= 23 and 0 <= minute <= 59


cdef inline bint _is_listed(Node* node, const uint8_t* text, size_t size) noexcept nogil:
    cdef int index
    for index in range(node.word_count):
        if node.words[index].length == size and memcmp(node.words[index].text, text, size) == 0:
            return True
    return False


cdef inline bint _takes_text(Node* node, const uint8_t* text, size_t size) noexcept nogil:
    if node.accepts & TAKES_TEXT:
        return True
    if node.accepts & TAKES_WORDS:
        return _is_listed(node, text, size)
    if node.accepts & TAKES_OTHERS:
        return not _is_listed(node, text, size)
    return node.accepts & TAKES_MOMENT and _is_moment(text, size)


# -- from BSON to JSON -----------------------------------------------------------------------------------------------


cdef int write_json(Buffer out, uint8_t kind, const uint8_t* value, size_t size, Shape shape) except -1:
    global entries_used
    cdef size_t start = out.used
    entries_used = 0
    # A column that holds JSON's null is written as a field without a value.
    if kind == NULL_VALUE or _value_size(kind, value, size) != <int64_t> size:
        return 0
    if not _write(out, kind, value, size, NULL if shape is None else shape.node, 0):
        out.used = start
        return 0
    return 1


cdef inline bint _read_integer(uint8_t kind, const uint8_t* value, int64_t* number) noexcept nogil:
    """Read an int32 or an int64; return 0 for an int64 that comes back from JSON as an int32."""
    if kind == INT32:
        number[0] = _int32(value)
        return True
    memcpy(number, value, 8)
    return number[0] < INT32_MIN or number[0] > INT32_MAX


cdef int _write(Buffer out, uint8_t kind, const uint8_t* value, size_t size, Node* node, int depth) except -1:
    """Append the text of a value whose size is right; return 0 for one that is for the Python codec."""
    cdef int64_t number
    if node is not NULL and node.accepts & TAKES_ANY:
        node = NULL
    if kind == TEXT:
        if node is not NULL and not _takes_text(node, value + 4, size - 5):
            return 0
        return _write_text(out, value + 4, size - 5)
    if kind == INT32 or kind == INT64:
        if not _read_integer(kind, value, &number):
            return 0
        if node is not NULL and not (node.accepts & TAKES_INT and node.least <= number <= node.most):
            return 0
        return _write_int(out, number)
    if kind == DOCUMENT or kind == ARRAY:
        if depth >= DEEPEST or _int32(value) != <int64_t> size:
            return 0
        if kind == ARRAY:
            if node is not NULL and not node.accepts & TAKES_LIST:
                return 0
            return _write_array(out, value, size, node, depth)
        if node is NULL or node.accepts & TAKES_MAP:
            return _write_free(out, value, size, node, depth)
        return _write_members(out, value, size, node, depth) if node.accepts & TAKES_MEMBERS else 0
    if kind == DOUBLE:
        return _write_double(out, value) if node is NULL or node.accepts & TAKES_DOUBLE else 0
    if kind == FLAG:
        if value[0] > 1 or (node is not NULL and not node.accepts & TAKES_FLAG):
            return 0
        out.append(b"true" if value[0] else b"false", 4 if value[0] else 5)
        return 1
    if node is not NULL and not node.accepts & TAKES_NULL:
        return 0
    out.append(b"null", 4)
    return 1


cdef int _write_int(Buffer out, int64_t number) except -1:
    cdef uint8_t[20] digits
    cdef int at = 20
    cdef uint64_t left = <uint64_t> number if number >= 0 else -<uint64_t> number
    while True:
        at -= 1
        digits[at] = <uint8_t> (c"0" + left % 10)
        left //= 10
        if left == 0:
            break
    if number < 0:
        at -= 1
        digits[at] = c"-"
    out.append(&digits[at], 20 - at)
    return 1


cdef int _write_double(Buffer out, const uint8_t* value) except -1:
    """Append a double whose shortest text has no exponent; jsonb keeps its digits."""
    cdef double number
    cdef char* text
    memcpy(&number, value, 8)
    if not (1e-4 <= fabs(number) < 1e15) and (number != 0 or signbit(number)):
        return 0
    text = PyOS_double_to_string(number, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
    try:
        out.append(text, strlen(text))
    finally:
        PyMem_Free(text)
    return 1


cdef inline void _count_up(uint8_t* digits, size_t* length) noexcept nogil:
    """Add one to a decimal number in ASCII."""
    cdef size_t at = length[0]
    while at > 0:
        at -= 1
        if digits[at] < c"9":
            digits[at] += 1
            return
        digits[at] = c"0"
    digits[0] = c"1"
    digits[length[0]] = c"0"
    length[0] += 1


cdef int _write_array(Buffer out, const uint8_t* value, size_t size, Node* node, int depth) except -1:
    cdef const uint8_t* at = value + 4
    cdef const uint8_t* end = value + size - 1
    cdef uint8_t[12] index
    cdef size_t length = 1
    cdef bint is_first = True
    cdef Entry item
    index[0] = c"0"
    out.append(b"[", 1)
    while at < end:
        if not _next_element(&at, end, &item):
            return 0
        if item.key_length != length or memcmp(item.key, index, length) != 0:
            return 0
        if not is_first:
            out.append(b", ", 2)
        is_first = False
        if not _write(out, item.kind, item.value, item.size, NULL if node is NULL else node.item, depth + 1):
            return 0
        _count_up(index, &length)
    out.append(b"]", 1)
    return 1


cdef int _write_free(Buffer out, const uint8_t* value, size_t size, Node* node, int depth) except -1:
    """Append a document of any keys."""
    global entries_used
    cdef size_t base = entries_used, index
    cdef int64_t count = _open_sorted(value, size)
    cdef Entry entry
    if count < 0:
        return 0
    out.append(b"{", 1)
    for index in range(base, base + <size_t> count):
        entry = entries[index]
        out.reserve(entry.key_length + 6)
        if index > base:
            memcpy(out.data + out.used, b", ", 2)
            out.used += 2
        out.data[out.used] = c'"'
        memcpy(out.data + out.used + 1, entry.key, entry.key_length)
        out.used += entry.key_length + 1
        memcpy(out.data + out.used, b'": ', 3)
        out.used += 3
        if not _write(out, entry.kind, entry.value, entry.size, NULL if node is NULL else node.item, depth + 1):
            return 0
    out.append(b"}", 1)
    entries_used = base
    return 1


cdef inline bint _is_named(const uint8_t* key, const uint8_t* end, Member* member) noexcept nogil:
    """Whether the key at ``key``, and the zero after it, stand before ``end`` and name the member."""
    return (
        <size_t> (end - key) > member.length
        and key[member.length] == 0
        and memcmp(key, member.head + 1, member.length) == 0
    )


cdef int _write_members(Buffer out, const uint8_t* value, size_t size, Node* node, int depth) except -1:
    """Append a document whose keys are listed; they stand in the order of the list, each at most once."""
    global entries_used
    cdef const uint8_t* at = value + 4
    cdef const uint8_t* end = value + size - 1
    cdef size_t base = entries_used
    cdef int next_member = 0, rank, index
    cdef int64_t value_size
    cdef Entry* entry
    cdef Member* member
    cdef bint is_first = True
    if base + node.count > MOST_MEMBERS:
        return 0
    while at < end:
        while next_member < node.count and not _is_named(at + 1, end, &node.members[next_member]):
            if node.members[next_member].is_required:
                return 0
            entries[base + next_member].key = NULL
            next_member += 1
        if next_member == node.count:
            return 0
        entry = &entries[base + next_member]
        entry.kind = at[0]
        entry.key = at + 1
        entry.value = at + 2 + node.members[next_member].length
        value_size = _value_size(entry.kind, entry.value, end - entry.value)
        if value_size < 0:
            return 0
        entry.size = <size_t> value_size
        at = entry.value + value_size
        next_member += 1
    while next_member < node.count:
        if node.members[next_member].is_required:
            return 0
        entries[base + next_member].key = NULL
        next_member += 1
    entries_used = base + node.count
    out.append(b"{", 1)
    for rank in range(node.count):
        index = node.members[rank].by_rank
        member = &node.members[index]
        entry = &entries[base + index]
        if entry.key is NULL:
            continue
        out.reserve(member.length + 6)
        if not is_first:
            memcpy(out.data + out.used, b", ", 2)
            out.used += 2
        is_first = False
        memcpy(out.data + out.used, member.head, member.length + 4)
        out.used += member.length + 4
        if not _write(out, entry.kind, entry.value, entry.size, member.node, depth + 1):
            return 0
    out.append(b"}", 1)
    entries_used = base
    return 1


# -- from JSON to BSON -----------------------------------------------------------------------------------------------

# Where a text is read, and where it ends.
cdef struct Reader:
    const uint8_t* at
    const uint8_t* end

# The value that a text was made of.
cdef struct Source:
    uint8_t kind
    const uint8_t* value
    size_t size


cdef int write_bson(
    Buffer out,
    const uint8_t* text,
    size_t size,
    Shape shape,
    uint8_t kind,
    const uint8_t* source,
    size_t source_size,
) except -1:
    global entries_used
    cdef size_t start = out.used
    cdef Reader reader = Reader(text, text + size)
    cdef Source made_of = Source(kind, source, source_size)
    cdef int found
    entries_used = 0
    found = 0
    if _value_size(kind, source, source_size) == <int64_t> source_size:
        found = _build(out, &reader, NULL if shape is None else shape.node, made_of, 0)
    if scratch.allotted > SCRATCH_KEPT:
        PyMem_Free(scratch.data)
        scratch.data, scratch.allotted = NULL, 0
    if not found or reader.at != reader.end:
        out.used = start
        return 0
    return found


cdef inline bint _follows(Reader* reader, const char* text, size_t size) noexcept nogil:
    """Whether a text comes next; if so, the position is moved to its end."""
    if <size_t> (reader.end - reader.at) < size or memcmp(reader.at, text, size) != 0:
        return False
    reader.at += size
    return True


cdef int _build(Buffer out, Reader* reader, Node* node, Source source, int depth) except -1:
    """Append the value of the text; return its type, or 0."""
    cdef uint8_t first
    if node is not NULL and node.accepts & TAKES_ANY:
        node = NULL
    if reader.at == reader.end or depth > DEEPEST:
        return 0
    first = reader.at[0]
    if first == c'"':
        return TEXT if _build_text(out, reader) else 0
    if first == c"{":
        if source.kind != DOCUMENT or _int32(source.value) != <int64_t> source.size:
            return 0
        reader.at += 1
        if node is NULL or not node.accepts & TAKES_MEMBERS:
            return DOCUMENT if _build_free(out, reader, node, source, depth) else 0
        return DOCUMENT if _build_members(out, reader, node, source, depth) else 0
    if first == c"[":
        if source.kind != ARRAY or _int32(source.value) != <int64_t> source.size:
            return 0
        reader.at += 1
        return ARRAY if _build_array(out, reader, node, source, depth) else 0
    if first == c"t":
        out.append(b"\x01", 1)
        return FLAG if _follows(reader, b"true", 4) else 0
    if first == c"f":
        out.append(b"\x00", 1)
        return FLAG if _follows(reader, b"false", 5) else 0
    if first == c"n":
        return NULL_VALUE if _follows(reader, b"null", 4) else 0
    return _build_number(out, reader)


cdef int _build_text(Buffer out, Reader* reader) except -1:
    cdef const uint8_t* at = reader.at + 1
    cdef const uint8_t* end = reader.end
    cdef size_t start = out.used, run
    cdef int32_t length
    cdef uint8_t byte
    out.reserve(8)
    out.used += 4
    while True:
        run = _plain(at, end - at)
        out.reserve(run + 2)
        memcpy(out.data + out.used, at, run)
        out.used += run
        at += run
        if at == end:
            return 0
        if at[0] == c'"':
            break
        if at[0] != c"\\" or end - at < 2:
            return 0
        byte = at[1]
        at += 2
        if byte == c"u":
            if end - at < 4 or at[0] != c"0" or at[1] != c"0" or at[2] > c"1":
                return 0
            byte = <uint8_t> ((at[2] - c"0") * 16 + (at[3] - c"0" if at[3] <= c"9" else at[3] - c"a" + 10))
            at += 4
        elif byte == c"n":
            byte = c"\n"
        elif byte == c"t":
            byte = c"\t"
        elif byte == c"r":
            byte = c"\r"
        elif byte == c"b":
            byte = c"\b"
        elif byte == c"f":
            byte = c"\f"
        out.data[out.used] = byte
        out.used += 1
    reader.at = at + 1
    if out.used - start > INT32_MAX - 1:
        return 0
    out.data[out.used] = 0
    out.used += 1
    length = <int32_t> (out.used - start - 4)
    memcpy(out.data + start, &length, 4)
    return 1


cdef int _build_number(Buffer out, Reader* reader) except -1:
    cdef char[LONGEST_NUMBER + 1] text
    cdef size_t size = 0, index
    cdef bint is_double = False
    cdef const uint8_t* at = reader.at
    cdef uint64_t whole = 0
    cdef int64_t number
    cdef int32_t small
    cdef double real
    while at < reader.end and (c"0" <= at[0] <= c"9" or at[0] == c"." or (at[0] == c"-" and size == 0)):
        if size == LONGEST_NUMBER:
            return 0
        is_double = is_double or at[0] == c"."
        text[size] = <char> at[0]
        size += 1
        at += 1
    reader.at = at
    text[size] = 0
    if is_double:
        try:
            real = PyOS_string_to_double(text, NULL, None)
        except ValueError:
            return 0
        out.append(&real, 8)
        return DOUBLE
    index = 1 if text[0] == c"-" else 0
    if index == size or size - index > 19:
        return 0
    for index in range(index, size):
        whole = whole * 10 + <uint64_t> (text[index] - c"0")
    if whole > <uint64_t> INT64_MAX + (1 if text[0] == c"-" else 0):
        return 0
    number = <int64_t> (-whole if text[0] == c"-" else whole)
    if INT32_MIN <= number <= INT32_MAX:
        small = <int32_t> number
        out.append(&small, 4)
        return INT32
    out.append(&number, 8)
    return INT64


cdef int _close(Buffer out, size_t start) except -1:
    """End the document that begins at ``start``."""
    cdef int32_t length
    out.append(b"\x00", 1)
    if out.used - start > INT32_MAX:
        return 0
    length = <int32_t> (out.used - start)
    memcpy(out.data + start, &length, 4)
    return 1


cdef int _build_array(Buffer out, Reader* reader, Node* node, Source source, int depth) except -1:
    cdef size_t start = out.used, head, length = 1
    cdef uint8_t[12] index
    cdef Node* inner = NULL if node is NULL else node.item
    cdef bint is_free = inner is NULL or inner.is_free
    cdef const uint8_t* at = source.value + 4
    cdef const uint8_t* end = source.value + source.size - 1
    cdef Entry item
    cdef Source part
    cdef int kind
    index[0] = c"0"
    out.reserve(4)
    out.used += 4
    if _follows(reader, b"]", 1):
        return _close(out, start)
    while True:
        # Without free documents the source of an item is looked at for its frame alone.
        if at >= end or not _next_element(&at, end, &item):
            return 0
        part = Source(item.kind, item.value, item.size)
        out.reserve(length + 2)
        head = out.used
        memcpy(out.data + head + 1, index, length)
        out.data[head + 1 + length] = 0
        out.used += length + 2
        kind = _build(out, reader, inner, part, depth + 1)
        if not kind:
            return 0
        out.data[head] = <uint8_t> kind
        if _follows(reader, b"]", 1):
            return _close(out, start)
        if not _follows(reader, b", ", 2):
            return 0
        _count_up(index, &length)


cdef int _build_free(Buffer out, Reader* reader, Node* node, Source source, int depth) except -1:
    """Append a document of any keys, in the order of its source."""
    global entries_used
    cdef size_t start = out.used, base = entries_used, index
    cdef int64_t count = _open_sorted(source.value, source.size)
    cdef Entry entry
    cdef int kind
    cdef bint is_ordered = True
    if count < 0:
        return 0
    out.reserve(4)
    out.used += 4
    for index in range(base, base + <size_t> count):
        entry = entries[index]
        if index > base and not _follows(reader, b", ", 2):
            return 0
        if not (
            _follows(reader, b'"', 1)
            and _follows(reader, <const char*> entry.key, entry.key_length)
            and _follows(reader, b'": ', 3)
        ):
            return 0
        is_ordered = is_ordered and <size_t> entry.other == index - base
        entries[index].start = out.used
        out.reserve(entry.key_length + 2)
        memcpy(out.data + out.used + 1, entry.key, entry.key_length + 1)
        out.used += entry.key_length + 2
        kind = _build(
            out,
            reader,
            NULL if node is NULL else node.item,
            Source(entry.kind, entry.value, entry.size),
            depth + 1,
        )
        if not kind:
            return 0
        out.data[entries[index].start] = <uint8_t> kind
        entries[index].end = out.used
    if not _follows(reader, b"}", 1):
        return 0
    if not is_ordered:
        for index in range(base, base + <size_t> count):
            entries[base + entries[index].other].key_length = <uint32_t> index
        scratch.used = 0
        scratch.append(out.data + start, out.used - start)
        out.used = start + 4
        for index in range(base, base + <size_t> count):
            entry = entries[entries[index].key_length]
            memcpy(out.data + out.used, scratch.data + (entry.start - start), entry.end - entry.start)
            out.used += entry.end - entry.start
    entries_used = base
    return _close(out, start)


cdef int _build_members(Buffer out, Reader* reader, Node* node, Source source, int depth) except -1:
    """Append a document whose keys are listed, in the order of the list."""
    global entries_used
    cdef const uint8_t* at = source.value + 4
    cdef const uint8_t* end = source.value + source.size - 1
    cdef size_t start = out.used, base = entries_used, head
    cdef int rank = 0, index, kind, last = -1
    cdef bint is_ordered = True
    cdef Member* member
    cdef Entry* entry
    cdef int64_t value_size
    if base + node.count > MOST_MEMBERS:
        return 0
    # Where the source has the members, in the order of the list, as ``_write_members`` found them.
    for index in range(node.count):
        entry = &entries[base + index]
        entry.key = NULL
        if at < end and _is_named(at + 1, end, &node.members[index]):
            entry.kind, entry.key, entry.value = at[0], at + 1, at + 2 + node.members[index].length
            value_size = _value_size(entry.kind, entry.value, end - entry.value)
            if value_size < 0:
                return 0
            entry.size = <size_t> value_size
            at = entry.value + value_size
    if at != end:
        return 0
    entries_used = base + node.count
    out.reserve(4)
    out.used += 4
    for rank in range(node.count):
        index = node.members[rank].by_rank
        entry = &entries[base + index]
        if entry.key is NULL:
            continue
        member = &node.members[index]
        if last >= 0 and not _follows(reader, b", ", 2):
            return 0
        if not _follows(reader, member.head, member.length + 4):
            return 0
        is_ordered = is_ordered and index > last
        last = index
        head = out.used
        out.reserve(member.length + 2)
        memcpy(out.data + head + 1, member.head + 1, member.length)
        out.data[head + 1 + member.length] = 0
        out.used += member.length + 2
        kind = _build(out, reader, member.node, Source(entry.kind, entry.value, entry.size), depth + 1)
        if not kind:
            return 0
        out.data[head] = <uint8_t> kind
        entry.start = head
        entry.end = out.used
    if not _follows(reader, b"}", 1):
        return 0
    if not is_ordered:
        scratch.used = 0
        scratch.append(out.data + start, out.used - start)
        out.used = start + 4
        for index in range(node.count):
            entry = &entries[base + index]
            if entry.key is not NULL:
                memcpy(out.data + out.used, scratch.data + (entry.start - start), entry.end - entry.start)
                out.used += entry.end - entry.start
    entries_used = base
    return _close(out, start)


# -- as Python writes JSON -------------------------------------------------------------------------------------------


cdef int write_python_json(Buffer out, uint8_t kind, const uint8_t* value, size_t size) except -1:
    cdef size_t start = out.used
    if _value_size(kind, value, size) != <int64_t> size or not _write_python(out, kind, value, size, 0):
        out.used = start
        return 0
    return 1


cdef int _write_python(Buffer out, uint8_t kind, const uint8_t* value, size_t size, int depth) except -1:
    """Append the text of a value whose size is right; return 0 for one that is for the Python codec."""
    cdef int64_t number
    cdef double real
    cdef char* text
    if kind == TEXT:
        return _write_ascii(out, value + 4, size - 5)
    if kind == INT32 or kind == INT64:
        if not _read_integer(kind, value, &number):
            return 0
        return _write_int(out, number)
    if kind == DOUBLE:
        memcpy(&real, value, 8)
        if real - real != 0:  # not finite
            return 0
        text = PyOS_double_to_string(real, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
        try:
            out.append(text, strlen(text))
        finally:
            PyMem_Free(text)
        return 1
    if kind == FLAG:
        if value[0] > 1:
            return 0
        out.append(b"true" if value[0] else b"false", 4 if value[0] else 5)
        return 1
    if kind == NULL_VALUE:
        out.append(b"null", 4)
        return 1
    if depth >= DEEPEST or _int32(value) != <int64_t> size:
        return 0
    return _write_python_members(out, kind == ARRAY, value, size, depth)


cdef int _write_python_members(Buffer out, bint is_array, const uint8_t* value, size_t size, int depth) except -1:
    cdef const uint8_t* at = value + 4
    cdef const uint8_t* end = value + size - 1
    cdef uint8_t[12] index
    cdef size_t length = 1
    cdef int count = 0
    cdef Entry item
    index[0] = c"0"
    out.append(b"[" if is_array else b"{", 1)
    while at < end:
        if not _next_element(&at, end, &item):
            return 0
        if count:
            out.append(b", ", 2)
        if is_array:
            if item.key_length != length or memcmp(item.key, index, length) != 0:
                return 0
            _count_up(index, &length)
        else:
            if count == MOST_COMPARED or _is_read_otherwise(value, &item):
                return 0
            if not _write_ascii(out, item.key, item.key_length):
                return 0
            out.append(b": ", 2)
        if not _write_python(out, item.kind, item.value, item.size, depth + 1):
            return 0
        count += 1
    out.append(b"]" if is_array else b"}", 1)
    return 1


cdef bint _is_read_otherwise(const uint8_t* value, const Entry* item) noexcept nogil:
    """Whether a key makes a document something else to Python: that of a DBRef, of Kombu's types, or one that repeats."""
    cdef const uint8_t* at = value + 4
    cdef Entry other
    if item.key_length and item.key[0] == c"$" or item.key_length == 8 and memcmp(item.key, b"__type__", 8) == 0:
        return True
    while at + 1 != item.key:
        if not _next_element(&at, item.key, &other):
            return True
        if other.key_length == item.key_length and memcmp(other.key, item.key, item.key_length) == 0:
            return True
    return False


cdef int _write_ascii(Buffer out, const uint8_t* text, size_t size) except -1:
    """Append a text with escapes for all but ASCII; return 0 for one that is not strict UTF-8."""
    cdef size_t at = 0, run, length
    cdef uint32_t point
    cdef uint8_t letter
    out.append(b'"', 1)
    while True:
        run = at
        while run < size and c" " <= text[run] <= c"~" and text[run] != c'"' and text[run] != c"\\":
            run += 1
        out.append(text + at, run - at)
        at = run
        if at == size:
            break
        out.reserve(12)
        letter = _escape(text[at])
        if letter:
            out.data[out.used] = c"\\"
            out.data[out.used + 1] = letter
            out.used += 2
            at += 1
            continue
        point, length = text[at], 1
        if point >= 0x80:
            length = _sequence(text + at, size - at)
            if length == 0:
                return 0
            point &= 0xFF >> (length + 1)
            for run in range(1, length):
                point = point << 6 | (text[at + run] & 0x3F)
        at += length
        if point < 0x10000:
            _put_escape(out, point)
        else:
            point -= 0x10000
            _put_escape(out, 0xD800 | point >> 10)
            _put_escape(out, 0xDC00 | (point & 0x3FF))
    out.append(b'"', 1)
    return 1


cdef inline void _put_escape(Buffer out, uint32_t unit) noexcept:
    """Append the escape of a unit of UTF-16; there is room."""
    cdef int place
    out.data[out.used] = c"\\"
    out.data[out.used + 1] = c"u"
    for place in range(4):
        out.data[out.used + 2 + place] = HEX[unit >> (12 - 4 * place) & 15]
    out.used += 6


# -- for tests -------------------------------------------------------------------------------------------------------


def python_json_of(int kind, bytes value not None):
    """Return the text that Python's ``json.dumps`` makes of a BSON value; None for one that is for the Python codec."""
    cdef Buffer out = Buffer()
    if not write_python_json(out, <uint8_t> kind, value, len(value)):
        return None
    return <bytes> out.data[: out.used]


def json_of(int kind, bytes value not None, Shape shape=None):
    """Return the canonical jsonb text of a BSON value; None for one that is for the Python codec."""
    cdef Buffer out = Buffer()
    if not write_json(out, <uint8_t> kind, value, len(value), shape):
        return None
    return <bytes> out.data[: out.used]


def bson_of(bytes text not None, int kind, bytes source not None, Shape shape=None):
    """Return type and bytes of the BSON value of a text that was made of ``source``; None if it is not of the shape."""
    cdef Buffer out = Buffer()
    cdef int found = write_bson(out, text, len(text), shape, <uint8_t> kind, source, len(source))
    return (found, <bytes> out.data[: out.used]) if found else None
