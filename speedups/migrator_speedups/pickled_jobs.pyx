"""Pickled jobs of APScheduler 3: what many of them share is asked for once.

Two jobs with the same function, trigger and options have pickles that differ in a few values: id, name, arguments and
the next run. Such a value is a hole. The skeleton of a pickle is its opcodes without what is in the holes, so that
pickles of one skeleton do the same with other values. The Python codec reads one pickle of a skeleton, and says of each
column what it holds, and where the holes are in it (``migrator.sources.apscheduler.native_plan``).

Only the values that are copied are holes: nothing that is called, set as a state, or used as a key. Where a pickle refers
to a value a second time, the value is copied there too, or it is no hole. An opcode that is rare, and a structure that is not certain, leaves the pickle to the
Python codec. Nothing is imported and nothing is called of what a pickle names.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from migrator_speedups.json_text cimport Buffer, _write_text

cdef enum:
    LONGEST = 65536  # bytes of a pickle
    LONGEST_SKELETON = 8192
    DEEPEST = 256  # values on the stack
    MOST_MARKS = 32
    MOST_MEMORISED = 1024
    MOST_SKELETONS = 4096
    MOST_ONCE = 16384  # skeletons that came once
    MOST_OFFSETS = 65536
    MOST_REFUSALS = 256  # skeletons for the Python codec, after which no more are learned unless most others were not
    TRIES = 3  # pickles of a skeleton that are asked about: one of them may hold what no column can
    PACKED = 10  # bytes of a packed date and time

cdef enum Role:
    NONE
    ID
    NAME
    TEXT
    WHOLE
    DUE
    REFERENCE
    MOMENT

cdef int64_t MICROSECONDS = 1000000

cdef struct Memorised:
    int hole
    const uint8_t* text
    size_t size


cdef bint is_named(Value* key, const char* name, size_t size) noexcept:
    return key.text is not NULL and key.size == size and memcmp(key.text, name, size) == 0


@cython.final
cdef class PickledJobs:

    def __cinit__(self, learn, offset):
        """Take the functions that are asked.

        ``learn``: (pickle, its holes as (start, stop, role), id, next run in microseconds since 1970 or None) → None for
        a skeleton that is for the Python codec, else (cells, position of the hole that is the name or -1, payload,
        next run, moment). The payload is a cell, or a tuple of pieces of it with the positions of holes between them.
        The next run is None or (position of its hole, zone), the moment None or (position of the hole of a trigger's
        time, zone, column, (beginning and end of the cell of the trigger's specification)). A zone is microseconds east
        of UTC, or the name for ``offset``.
        ``offset``: (zone, the first five bytes of a packed time) → microseconds east of UTC in this hour, or None.
        """
        self.learn, self.offset = learn, offset
        self.known, self.offsets, self.once = {}, {}, set()
        self.refused = self.learned = 0
        self.key = Buffer()
        self.count = 0

    cdef int read(
        self,
        const uint8_t* data,
        size_t size,
        const uint8_t* id,
        size_t id_size,
        bint has_due,
        int64_t due,
        Buffer payload,
    ) except -1:
        cdef int index
        cdef tuple entry, held
        cdef bytes piece
        cdef int64_t instant
        self.count = 0
        if size > LONGEST or not self._find_holes(data, size):
            return 0
        self.name, self.name_size = NULL, 0
        for index in range(self.count):
            if self.holes[index].role == ID:
                if self.holes[index].size != id_size or memcmp(self.holes[index].text, id, id_size) != 0:
                    return 0
        self._make_key(data, size)
        if self.key.used > LONGEST_SKELETON:
            return 0
        found = self._entry(data, size, id, id_size, due if has_due else None)
        if found is None:
            return 0
        entry = found
        if (entry[3] is not None) != has_due:
            return 0
        if has_due:
            held = entry[3]
            if not self._instant(self.holes[<int> held[0]].text, held[1], &instant) or instant != due:
                return 0
        self.moment_column = -1
        if entry[4] is not None:
            held = entry[4]
            if not self._instant(self.holes[<int> held[0]].text, held[1], &self.moment):
                return 0
            self.moment_column, self.specification = held[2], held[3]
        self.cells = entry[0]
        index = entry[1]
        if index >= 0:
            self.name, self.name_size = self.holes[index].text, self.holes[index].size
        if type(entry[2]) is bytes:
            piece = <bytes> entry[2]
            payload.append(PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
            return 1
        for part in <tuple> entry[2]:
            if type(part) is bytes:
                piece = <bytes> part
                payload.append(PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
            elif not self._fill(&self.holes[<int> part], payload):
                return 0
        return 1

    cdef int _fill(self, Hole* hole, Buffer payload) except -1:
        cdef char digits[24]
        if hole.role != WHOLE:
            return _write_text(payload, hole.text, hole.size)
        payload.append(digits, snprintf(digits, 24, b"%lld", <long long> hole.number))
        return 1

    cdef object _entry(self, const uint8_t* data, size_t size, const uint8_t* id, size_t id_size, due):
        """Return the answer that is known for the skeleton; a new one is asked for when it comes a second time."""
        cdef bytes key = PyBytes_FromStringAndSize(<char*> self.key.data, self.key.used)
        cdef Hole* hole
        cdef int index
        cdef int tries = 0
        found = self.known.get(key, self)
        if type(found) is int:
            tries = found
            if tries == TRIES:
                return None
        elif found is not self:
            return found
        if self.refused > MOST_REFUSALS + self.learned:
            return None
        mark = hash(key)
        if not tries and mark not in self.once:
            if len(self.once) >= MOST_ONCE:
                self.once.clear()
            self.once.add(mark)
            return None
        holes = []
        for index in range(self.count):
            hole = &self.holes[index]
            holes.append((hole.start, hole.stop, hole.role if hole.live else NONE))
        found = self.learn(
            PyBytes_FromStringAndSize(<char*> data, size),
            holes,
            PyBytes_FromStringAndSize(<char*> id, id_size),
            None if due is None else due,
        )
        if found is not None:
            self.learned += 1
        elif tries + 1 == TRIES:
            self.refused += 1
        if len(self.known) >= MOST_SKELETONS:
            self.known.clear()
        self.known[key] = tries + 1 if found is None else found
        return found

    cdef bint _instant(self, const uint8_t* packed, zone, int64_t* instant) except *:
        """Find the instant of a packed time of a zone, in microseconds since 1970; return False if there is none."""
        cdef int year = packed[0] << 8 | packed[1], month = packed[2] & 0x7F, day = packed[3]
        cdef int64_t fraction = packed[7] << 16 | packed[8] << 8 | packed[9], local
        if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= days_of_month(year, month)):
            return False
        if packed[4] > 23 or packed[5] > 59 or packed[6] > 59 or fraction >= MICROSECONDS:
            return False
        local = (
            days_since_1970(year, month, day) * 86400 + packed[4] * 3600 + packed[5] * 60 + packed[6]
        ) * MICROSECONDS + fraction
        if type(zone) is int:
            instant[0] = local - <int64_t> zone
            return True
        key = (zone, PyBytes_FromStringAndSize(<char*> packed, 5))
        found = self.offsets.get(key, self)
        if found is self:
            found = self.offset(*key)
            if len(self.offsets) >= MOST_OFFSETS:
                self.offsets.clear()
            self.offsets[key] = found
        if found is None:
            return False
        instant[0] = local - <int64_t> found
        return True

    cdef int _make_key(self, const uint8_t* data, size_t size) except -1:
        """Make the skeleton: no opcode is zero, so what stands for a hole cannot be mistaken."""
        cdef size_t at = 2
        cdef int index
        cdef Hole* hole
        cdef uint8_t mark[2]
        self.key.used = 0
        self.key.append(data, 2)
        if data[at] == 0x95:  # FRAME: its length says nothing
            self.key.append(data + at, 1)
            at += 9
        mark[0] = 0
        for index in range(self.count):
            hole = &self.holes[index]
            if not hole.live:
                continue
            self.key.append(data + at, hole.start - at)
            mark[1] = hole.role
            self.key.append(mark, 2)
            at = hole.stop
        self.key.append(data + at, size - at)
        return 0

    cdef int _hole(
        self, size_t start, size_t stop, uint8_t role, const uint8_t* text, size_t size, int64_t number
    ) noexcept:
        """Note a value that may become a hole; return its position, -1 if there are too many."""
        cdef Hole* hole
        if self.count == MOST_HOLES:
            return -1
        hole = &self.holes[self.count]
        hole.start, hole.stop, hole.role, hole.live = start, stop, role, True
        hole.text, hole.size, hole.number = text, size, number
        self.count += 1
        return self.count - 1

    cdef int _find_holes(self, const uint8_t* data, size_t size) except -1:
        """Find the holes of a pickle in the form in which Python writes a job; return 0 for any other."""
        cdef Value[DEEPEST] stack
        cdef int[MOST_MARKS] marks
        cdef Memorised[MOST_MEMORISED] memo
        cdef Value* value
        cdef size_t at, begin, length
        cdef int depth = 0, mark = 0, memorised = 0, index, base, place
        cdef uint8_t code
        cdef uint16_t small
        cdef uint32_t wide
        cdef int32_t number
        if size < 4 or data[0] != 0x80 or (data[1] != 4 and data[1] != 5):
            return 0
        at = 2
        if data[at] == 0x95:
            if size - at < 9:
                return 0
            at += 9
        while at < size:
            begin = at
            code = data[at]
            at += 1
            if code == 0x94:  # MEMOIZE
                if depth == 0 or memorised == MOST_MEMORISED:
                    return 0
                value = &stack[depth - 1]
                memo[memorised].hole, memo[memorised].text, memo[memorised].size = value.hole, value.text, value.size
                memorised += 1
                continue
            if code == 0x28:  # MARK
                if mark == MOST_MARKS:
                    return 0
                marks[mark] = depth
                mark += 1
                continue
            base = 0 if mark == 0 else marks[mark - 1]
            if code == 0x8C or code == 0x58 or code == 0x43:  # SHORT_BINUNICODE, BINUNICODE, SHORT_BINBYTES
                if code == 0x58:
                    if size - at < 4:
                        return 0
                    memcpy(&wide, data + at, 4)
                    length = wide
                    at += 4
                else:
                    if at == size:
                        return 0
                    length = data[at]
                    at += 1
                if length > size - at or depth == DEEPEST:
                    return 0
                value = &stack[depth]
                depth += 1
                value.start, value.first, value.hole, value.text, value.size = begin, self.count, -1, NULL, 0
                if code != 0x43:
                    value.text, value.size = data + at, length
                if code != 0x43 or length == PACKED:
                    value.hole = self._hole(
                        begin, at + length, DUE if code == 0x43 else TEXT, data + at, length, 0
                    )
                    if value.hole < 0:
                        return 0
                at += length
            elif code == 0x68 or code == 0x6A:  # BINGET, LONG_BINGET
                if code == 0x68:
                    if at == size:
                        return 0
                    length = data[at]
                    at += 1
                else:
                    if size - at < 4:
                        return 0
                    memcpy(&wide, data + at, 4)
                    length = wide
                    at += 4
                if length >= <size_t> memorised or depth == DEEPEST:
                    return 0
                value = &stack[depth]
                depth += 1
                value.start, value.first, value.hole = begin, self.count, -1
                value.text, value.size = memo[length].text, memo[length].size
                place = memo[length].hole
                if place >= 0:
                    if self.holes[place].role == REFERENCE:
                        place = <int> self.holes[place].number
                    if self.holes[place].role == DUE:
                        self.holes[place].live = False
                    value.hole = self._hole(begin, at, REFERENCE, NULL, 0, place)
                    if value.hole < 0:
                        return 0
            elif code == 0x4B or code == 0x4D or code == 0x4A:  # BININT1, BININT2, BININT
                length = 1 if code == 0x4B else 2 if code == 0x4D else 4
                if length > size - at or depth == DEEPEST:
                    return 0
                if code == 0x4B:
                    number = data[at]
                elif code == 0x4D:
                    memcpy(&small, data + at, 2)
                    number = small
                else:
                    memcpy(&number, data + at, 4)
                at += length
                value = &stack[depth]
                depth += 1
                value.start, value.first, value.text, value.size = begin, self.count, NULL, 0
                value.hole = self._hole(begin, at, WHOLE, NULL, 0, number)
                if value.hole < 0:
                    return 0
            elif code in (0x4E, 0x88, 0x89, 0x5D, 0x29, 0x7D, 0x47, 0x8A):
                # NONE, NEWTRUE, NEWFALSE, EMPTY_LIST, EMPTY_TUPLE, EMPTY_DICT, BINFLOAT, LONG1
                if code == 0x47:
                    at += 8
                elif code == 0x8A:
                    if at == size:
                        return 0
                    at += 1 + data[at]
                if at > size or depth == DEEPEST:
                    return 0
                value = &stack[depth]
                depth += 1
                value.start, value.first, value.hole, value.text, value.size = begin, self.count, -1, NULL, 0
            elif code == 0x85 or code == 0x86 or code == 0x87:  # TUPLE1, TUPLE2, TUPLE3
                place = depth - (code - 0x84)
                if place < base:
                    return 0
                stack[place].hole, stack[place].text = -1, NULL
                depth = place + 1
            elif code == 0x74:  # TUPLE
                if mark == 0 or depth == base:
                    return 0
                mark -= 1
                stack[base].hole, stack[base].text = -1, NULL
                depth = base + 1
            elif code == 0x65 or code == 0x75:  # APPENDS, SETITEMS
                if mark == 0 or base == 0:
                    return 0
                mark -= 1
                if mark and marks[mark - 1] > base - 1:
                    return 0
                if code == 0x75:
                    if (depth - base) % 2:
                        return 0
                    if base == 1 and mark == 0:
                        # what is set are the members of the job, and nothing comes after them
                        if at + 1 != size or data[at] != 0x2E or data[stack[0].start] != 0x7D:
                            return 0
                        return self._assign(stack, base, depth)
                    for index in range(base, depth, 2):
                        self._close(stack[index].first, stack[index + 1].first)
                depth = base
            elif code == 0x61 or code == 0x73:  # APPEND, SETITEM
                place = depth - (1 if code == 0x61 else 2)
                if place <= base:
                    return 0
                if code == 0x73:
                    self._close(stack[place].first, stack[place + 1].first)
                depth = place
            elif code == 0x93 or code == 0x52 or code == 0x81 or code == 0x62:
                # STACK_GLOBAL, REDUCE, NEWOBJ, BUILD: what is named, called or set as a state is no hole
                if depth - 2 < base:
                    return 0
                depth -= 1
                self._close(stack[depth - 1].first, self.count)
                stack[depth - 1].hole, stack[depth - 1].text = -1, NULL
            else:
                return 0
        return 0

    cdef int _close(self, int first, int stop) noexcept:
        """Say of values that they are no holes; a packed time may be one all the same."""
        cdef int index
        for index in range(first, stop):
            if self.holes[index].role != DUE:
                self._drop(index, index + 1)
        return 0

    cdef int _assign(self, Value* stack, int base, int depth) except -1:
        """Keep the holes of the members that have any; return 0 for members that are not those of a job."""
        cdef int index, number, first, stop
        cdef int ids = 0, names = 0, dues = 0, arguments = 0, moments
        if depth == base:
            return 0
        self._drop(0, stack[base].first)
        for index in range(base, depth, 2):
            self._drop(stack[index].first, stack[index + 1].first)  # the key
            if stack[index].text is NULL:
                return 0
            first = stack[index + 1].first
            stop = stack[index + 2].first if index + 2 < depth else self.count
            if is_named(&stack[index], b"id", 2) or is_named(&stack[index], b"name", 4):
                number = stack[index + 1].hole
                if is_named(&stack[index], b"id", 2):
                    ids += 1
                    if number < 0 or self.holes[number].role != TEXT or not self.holes[number].live:
                        return 0
                    self.holes[number].role = ID
                else:
                    names += 1
                    if number >= 0 and self.holes[number].role == TEXT and self.holes[number].live:
                        self.holes[number].role = NAME
                    elif not (stop == first + 1 and self.holes[first].role == REFERENCE):
                        self._drop(first, stop)
            elif is_named(&stack[index], b"next_run_time", 13):
                dues += 1
                self._close(first, stop)
                for number in range(first, stop):
                    if self.holes[number].role == DUE and self.holes[number].live:
                        arguments += 1
                if arguments > 1:
                    return 0
            elif is_named(&stack[index], b"trigger", 7):
                moments = 0
                for number in range(first, stop):
                    if self.holes[number].role == DUE and self.holes[number].live:
                        self.holes[number].role = MOMENT
                        moments += 1
                    else:
                        self._drop(number, number + 1)
                if moments > 1:
                    self._drop(first, stop)
            elif is_named(&stack[index], b"args", 4) or is_named(&stack[index], b"kwargs", 6):
                for number in range(first, stop):
                    if self.holes[number].role == DUE:
                        self._drop(number, number + 1)
            else:
                self._drop(first, stop)
        if ids != 1 or names != 1 or dues != 1:
            return 0
        number = ids = 0
        for index in range(self.count):
            if self.holes[index].live and self.holes[index].role != REFERENCE:
                ids += self.holes[index].role == ID
                if number != index:
                    self.holes[number] = self.holes[index]
                number += 1
        self.count = number
        return ids

    cdef int _drop(self, int first, int stop) noexcept:
        cdef int index
        for index in range(first, stop):
            self.holes[index].live = False
            if self.holes[index].role == REFERENCE:
                self.holes[self.holes[index].number].live = False
        return 0


cdef int days_of_month(int year, int month) noexcept:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef int64_t days_since_1970(int64_t year, int64_t month, int64_t day) noexcept:
    """Return the days since 1970 (proleptic Gregorian; Howard Hinnant's algorithm)."""
    cdef int64_t era, of_era, of_year
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


# -- Metadata --------------------------------------------------------------------------------------------------------

cdef const char* DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef const char* HEAD = b'\x01{"job_state": "'
cdef const char* TAIL = b'"}'

cdef enum:
    HEAD_SIZE = 16
    TAIL_SIZE = 2


cdef int write_metadata(Buffer out, const uint8_t* data, size_t size) except -1:
    cdef size_t at = 0
    cdef uint8_t* p
    cdef uint32_t three
    out.reserve(HEAD_SIZE + TAIL_SIZE + (size + 2) // 3 * 4)
    p = out.data + out.used
    memcpy(p, HEAD, HEAD_SIZE)
    p += HEAD_SIZE
    while at + 2 < size:
        three = <uint32_t> data[at] << 16 | <uint32_t> data[at + 1] << 8 | data[at + 2]
        p[0] = DIGITS[three >> 18]
        p[1] = DIGITS[three >> 12 & 63]
        p[2] = DIGITS[three >> 6 & 63]
        p[3] = DIGITS[three & 63]
        p += 4
        at += 3
    if at < size:
        three = <uint32_t> data[at] << 16 | (<uint32_t> data[at + 1] << 8 if at + 1 < size else 0)
        p[0] = DIGITS[three >> 18]
        p[1] = DIGITS[three >> 12 & 63]
        p[2] = DIGITS[three >> 6 & 63] if at + 1 < size else c"="
        p[3] = c"="
        p += 4
    memcpy(p, TAIL, TAIL_SIZE)
    out.used = p + TAIL_SIZE - out.data
    return 1


cdef int digit_value(uint8_t digit) noexcept:
    if 65 <= digit <= 90:
        return digit - 65
    if 97 <= digit <= 122:
        return digit - 71
    if 48 <= digit <= 57:
        return digit + 4
    return 62 if digit == c"+" else 63 if digit == c"/" else -1


cdef int read_metadata(Buffer out, const uint8_t* cell, size_t size) except -1:
    cdef const uint8_t* p = cell + HEAD_SIZE
    cdef const uint8_t* end = cell + size - TAIL_SIZE
    cdef uint8_t* to
    cdef int index, value, filled = 0
    cdef uint32_t four
    if size < HEAD_SIZE + TAIL_SIZE or memcmp(cell, HEAD, HEAD_SIZE) != 0 or memcmp(end, TAIL, TAIL_SIZE) != 0:
        return 0
    if (end - p) % 4:
        return 0
    out.reserve((end - p) // 4 * 3)
    to = out.data + out.used
    while p < end:
        four = 0
        filled = 4
        for index in range(4):
            value = digit_value(p[index])
            if value < 0:
                if p[index] != c"=" or end - p != 4 or index < 2 or (index == 2 and p[3] != c"="):
                    return 0
                value = 0
                filled = min(filled, index)
            four = four << 6 | <uint32_t> value
        to[0] = four >> 16 & 255
        if filled > 2:
            to[1] = four >> 8 & 255
        if filled > 3:
            to[2] = four & 255
        to += filled - 1
        p += 4
    out.used = to - out.data
    return 1
