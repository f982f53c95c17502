"""Documents that differ in a few values: what they have in common is asked for once.

The values in which they differ are declared: texts, times and free JSON, which are the holes of a document. Its outline
is everything else, byte for byte, with the order of the times among each other. Documents of one outline have the same
rows but for the holes. From the second document of an outline on, the Python codec is asked
(``migrator.sources.mapping.outlines``): what each column holds, and which hole is in it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp

from migrator_speedups.bson_values cimport ARRAY, DATE, DOCUMENT, NULL_VALUE, TEXT, is_text, little64, value_size
from migrator_speedups.json_text cimport Buffer

cdef enum Role:
    OF_TEXT
    OF_TIME
    OF_JSON

ROLES = {"text": OF_TEXT, "time": OF_TIME, "json": OF_JSON}

cdef enum:
    LONGEST_OUTLINE = 1024
    MOST_OUTLINES = 2048  # that are known, and as many older ones
    ASKED_AT_FIRST = 64
    USES = 4  # documents that each further answer must have saved
    IN_A_HOLE = 0x80  # is added to the type of a value that is in a hole

cdef int64_t FIRST_TIME = -62135596800000  # of the year 1, in milliseconds since 1970
cdef int64_t LAST_TIME = 253402300799999  # of the year 9999

cdef object _ONCE = object()  # an outline that one document had


@cython.final
cdef class Outlines:

    def __cinit__(self, learn, fields, longest):
        """Take the function that is asked, the fields that are holes with the words of their roles, and the bytes that a text in a hole may have."""
        cdef int index
        cdef Hole* hole
        if len(fields) > MOST_HOLES:
            raise ValueError("more holes than an outline has")
        self.learn, self.longest, self.count = learn, longest, len(fields)
        self.known, self.older, self.key = {}, {}, Buffer()
        self.asked = self.used = 0
        self.kept = []
        for index, (name, role) in enumerate(fields):
            terminated = name + b"\0"
            self.kept.append(terminated)
            hole = &self.holes[index]
            hole.name, hole.name_size = <const uint8_t*> PyBytes_AS_STRING(terminated), PyBytes_GET_SIZE(terminated)
            hole.role = ROLES[role]

    cdef int read(self, const uint8_t* raw, size_t size, const uint8_t* members) except -1:
        cdef bytes key
        self.answer = None
        if not self._find_holes(members, raw + size - 1):
            return 0
        key = PyBytes_FromStringAndSize(<char*> self.key.data, self.key.used)
        found = self._known(key)
        if found is self:
            self._remember(key, _ONCE)
            return 0
        if found is _ONCE:
            if self.asked >= ASKED_AT_FIRST + self.used // USES:
                return 0  # to ask is dear, and most answers were of no use
            self.asked += 1
            seen = tuple([index for index in range(self.count) if self.holes[index].seen])
            found = self.learn(PyBytes_FromStringAndSize(<char*> raw, size), seen)
            self._remember(key, found)
        if found is None:
            return 0
        self.used += 1
        self.answer = <tuple> found
        return 1

    cdef int _find_holes(self, const uint8_t* p, const uint8_t* end) except -1:
        """Find the holes, and make the key of the outline: elements, a zero byte, and the ranks of the times.

        An element whose value is in a hole is there without it, and marked at its type.
        """
        cdef const uint8_t* begin
        cdef const uint8_t* after
        cdef int index, other
        cdef int64_t length
        cdef uint8_t kind, mark, rank
        cdef Hole* hole
        self.key.used = 0
        for index in range(self.count):
            self.holes[index].seen = False
        while p < end:
            begin = p
            kind = p[0]
            p += 1
            after = <const uint8_t*> memchr(p, 0, end - p)
            if after is NULL:
                return 0
            index = self._named(p, end - p)
            p = after + 1
            length = value_size(kind, p, end - p)
            if length < 0:
                return 0
            if index >= 0 and not _is_in_hole(self.holes[index].role, kind, length):
                if self.holes[index].role == OF_TIME and kind != NULL_VALUE:
                    return 0  # a time that is compared with the others, and has no rank among them
                index = -1
            if index < 0:
                self.key.append(begin, p - begin + length)
            else:
                hole = &self.holes[index]
                if hole.seen:
                    return 0
                hole.seen, hole.kind, hole.value, hole.size = True, kind, p, <size_t> length
                if kind == TEXT and (
                    p[length - 1] != 0 or hole.size - 5 > self.longest or not is_text(p + 4, hole.size - 5)
                ):
                    return 0
                if kind == DATE:
                    hole.milliseconds = little64(p)
                    if not FIRST_TIME <= hole.milliseconds <= LAST_TIME:
                        return 0
                mark = kind | IN_A_HOLE
                self.key.append(&mark, 1)
                self.key.append(begin + 1, p - begin - 1)
            if self.key.used > LONGEST_OUTLINE:
                return 0
            p += length
        self.key.append(b"\0", 1)
        for index in range(self.count):
            if self.holes[index].seen and self.holes[index].role == OF_TIME:
                rank = 0
                for other in range(self.count):
                    if (
                        self.holes[other].seen
                        and self.holes[other].role == OF_TIME
                        and self.holes[other].milliseconds < self.holes[index].milliseconds
                    ):
                        rank += 1
                self.key.append(&rank, 1)
        return 1

    cdef int _named(self, const uint8_t* name, size_t room) noexcept:
        """Return the position of the hole of this name; -1 if there is none."""
        cdef int index
        for index in range(self.count):
            if room >= self.holes[index].name_size and (
                memcmp(name, self.holes[index].name, self.holes[index].name_size) == 0
            ):
                return index
        return -1

    cdef object _known(self, bytes key):
        """Return the answer for an outline: that of ``learn``, None (of no use), ``_ONCE``, or ``self`` if it never came."""
        found = self.known.get(key, self)
        if found is self:
            found = self.older.get(key, self)
            if found is not self:
                self._remember(key, found)
        return found

    cdef int _remember(self, bytes key, found) except -1:
        if len(self.known) >= MOST_OUTLINES and key not in self.known:
            self.older, self.known = self.known, {}
        self.known[key] = found
        return 0


cdef bint _is_in_hole(int role, uint8_t kind, int64_t size) noexcept:
    """Whether a value is in its hole, and not part of the outline; an empty text may say more than others."""
    if role == OF_TEXT:
        return kind == TEXT and size > 5
    if role == OF_TIME:
        return kind == DATE
    return kind == DOCUMENT or kind == ARRAY
