"""The reader of pickles once more, for the opcodes that Python's own pickler writes since protocol 2.

It makes of a pickle what ``migrator.sources.pickles`` makes of it, with that module's classes, or nothing:
an opcode that is rare, a limit that may be near, and everything that must be refused are left to that module, which
reads the pickle from its beginning. It imports nothing and calls nothing of what a pickle names.

The value of one member, which many pickles share, is kept by the opcodes that make it: where the same opcodes come
again, they make the same value. That holds of opcodes that use nothing from before them but texts, which are compared.
A pickle that would change such a value afterwards is left to the Python reader.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #define swapped64(value) __builtin_bswap64(value)
    """
    uint64_t swapped64(uint64_t value)

cdef enum:
    LONGEST = 65536  # bytes of a pickle; also opcodes, since each takes one
    DEEPEST = 60
    MOST_VALUES = 20000
    MOST_TEXT = 4194304
    LONGEST_NAMES = 256  # bytes of a module and a name
    LONGEST_PART = 8192  # bytes of opcodes that are kept
    MOST_PARTS = 1024
    MOST_MARKS = 32


class _Handed(Exception):
    """The pickle is for the Python reader."""


cdef bint _is_name(bytes text):
    return text.replace(b".", b"").replace(b"_", b"").isalnum()


cdef Py_ssize_t part_size(const uint8_t* p, const uint8_t* end) noexcept:
    """Return the bytes of the opcodes that make one value, up to the first that sets its state; 0 if there is none."""
    cdef const uint8_t* begin = p
    cdef int depth = 0, mark = 0
    cdef int marks[MOST_MARKS]
    cdef uint8_t code
    cdef uint32_t wide
    if end - p > LONGEST_PART:
        end = p + LONGEST_PART
    while p < end:
        code = p[0]
        p += 1
        if code == 0x8C or code == 0x43:
            if p >= end:
                return 0
            p += 1 + p[0]
            depth += 1
        elif code == 0x58 or code == 0x42:
            if end - p < 4:
                return 0
            memcpy(&wide, p, 4)
            if wide > LONGEST_PART:
                return 0
            p += 4 + wide
            depth += 1
        elif code == 0x68 or code == 0x4B:
            p += 1
            depth += 1
        elif code == 0x4D:
            p += 2
            depth += 1
        elif code == 0x6A or code == 0x4A:
            p += 4
            depth += 1
        elif code == 0x8A:
            if p >= end:
                return 0
            p += 1 + p[0]
            depth += 1
        elif code == 0x47:
            p += 8
            depth += 1
        elif code == 0x4E or code == 0x88 or code == 0x89 or code == 0x5D or code == 0x29 or code == 0x7D:
            depth += 1
        elif code == 0x28:
            if mark == MOST_MARKS:
                return 0
            marks[mark] = depth
            mark += 1
        elif code == 0x74 or code == 0x65 or code == 0x75:
            if mark == 0:
                return 0
            mark -= 1
            depth = marks[mark] + (code == 0x74)
        elif code == 0x85 or code == 0x86 or code == 0x87:
            depth -= code - 0x85
        elif code == 0x61 or code == 0x93 or code == 0x52 or code == 0x81 or code == 0x62:
            depth -= 1
        elif code == 0x73:
            depth -= 2
        elif code == 0x71:
            p += 1
        elif code == 0x72:
            p += 4
        elif code != 0x94:
            return 0
        if depth < 1 and mark == 0 or p > end:
            return 0
        if code == 0x62 and depth == 1 and mark == 0:
            return p - begin
    return 0


@cython.final
cdef class Part:
    """A value that opcodes make, and what they leave behind."""

    cdef object value
    cdef list memo  # what they put into the memo
    cdef list outside  # texts of the memo from before that they use: (place, text)
    cdef Py_ssize_t values, text
    cdef int height


@cython.final
cdef class PickleReader:
    """Reads pickles into the records of the Python reader. Not to be used by two threads at a time."""

    cdef object table, made, global_, resolve, make
    cdef frozenset converted
    cdef bytes shared  # the key whose value is kept, as its opcodes
    cdef dict globals, parts
    cdef Part part  # of the pickle that is read
    cdef Py_ssize_t values, text
    cdef int height

    def __init__(self, table, made, global_, resolve, make, frozenset converted, str shared):
        """Take the classes of the records, what names a global and what a call stands for (both may raise).

        ``shared``: the key of the member whose value many pickles share.
        """
        self.table, self.made, self.global_ = table, made, global_
        self.resolve, self.make, self.converted = resolve, make, converted
        key = shared.encode()
        self.shared = b"\x8c" + bytes([len(key)]) + key + b"\x94"
        self.globals, self.parts = {}, {}

    def read(self, bytes data not None):
        """Return the data of a pickle in a tuple of one; None for one that the Python reader must read."""
        if PyBytes_GET_SIZE(data) > LONGEST:
            return None
        try:
            value = self._execute(<const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self.values, self.text, self.height = 0, 0, 0
            self._weigh(value, 0)
        except (_Handed, ValueError):
            return None
        return (value,)

    cdef object _execute(self, const uint8_t* p, Py_ssize_t size):
        cdef const uint8_t* end = p + size
        cdef list stack = [], memo = [], marks = []
        cdef Py_ssize_t base = 0, length, place, index
        cdef uint8_t code
        cdef uint16_t small
        cdef int32_t number
        cdef uint32_t wide
        cdef uint64_t bits
        cdef double real
        cdef tuple key
        cdef Py_ssize_t size_of_key = PyBytes_GET_SIZE(self.shared)
        cdef const uint8_t* until = NULL  # where the opcodes end that are to be kept
        cdef Py_ssize_t bottom = 0, first = 0, deep = 0  # of the stack, the memo and the marks where they begin
        cdef tuple name = None
        cdef list outside = []
        self.part = None
        while p < end:
            if p == until:
                until = NULL
                if len(stack) == bottom + 1 and len(marks) == deep:
                    self._keep(name, stack[bottom], memo[first:], outside)
            if (
                self.part is None
                and until is NULL
                and end - p > size_of_key
                and memcmp(p, PyBytes_AS_STRING(self.shared), size_of_key) == 0
            ):
                found = (<bytes> self.shared)[2 : size_of_key - 1].decode()
                stack.append(found)
                memo.append(found)
                p += size_of_key
                length = part_size(p, end)
                if length:
                    name = (p[:length], len(memo))
                    self.part = self._part(name, memo)
                    if self.part is not None:
                        stack.append(self.part.value)
                        memo.extend(self.part.memo)
                        p += length
                    else:
                        until, bottom, first, deep = p + length, len(stack), len(memo), len(marks)
                continue
            code = p[0]
            p += 1
            if code == 0x94:  # MEMOIZE
                if len(stack) <= base:
                    raise _Handed
                memo.append(stack[len(stack) - 1])
            elif code == 0x8C or code == 0x58 or code == 0x43 or code == 0x42:
                # SHORT_BINUNICODE, BINUNICODE, SHORT_BINBYTES, BINBYTES
                if code == 0x8C or code == 0x43:
                    if p >= end:
                        raise _Handed
                    length = p[0]
                    p += 1
                else:
                    if end - p < 4:
                        raise _Handed
                    memcpy(&wide, p, 4)
                    length = wide
                    p += 4
                if length > end - p:
                    raise _Handed
                if code == 0x8C or code == 0x58:
                    stack.append(PyUnicode_DecodeUTF8(<char*> p, length, NULL))
                else:
                    stack.append(p[:length])
                p += length
            elif code == 0x68 or code == 0x6A:  # BINGET, LONG_BINGET
                if code == 0x68:
                    if p >= end:
                        raise _Handed
                    place = p[0]
                    p += 1
                else:
                    if end - p < 4:
                        raise _Handed
                    memcpy(&wide, p, 4)
                    place = wide
                    p += 4
                if place >= len(memo):
                    raise _Handed
                found = memo[place]
                if until is not NULL and place < first:
                    if type(found) is str:
                        outside.append((place, found))
                    else:
                        until = NULL
                stack.append(found)
            elif code == 0x71 or code == 0x72:  # BINPUT, LONG_BINPUT
                if code == 0x71:
                    if p >= end:
                        raise _Handed
                    place = p[0]
                    p += 1
                else:
                    if end - p < 4:
                        raise _Handed
                    memcpy(&wide, p, 4)
                    place = wide
                    p += 4
                if place != len(memo) or len(stack) <= base:
                    raise _Handed  # a place that is used again, or left out
                memo.append(stack[len(stack) - 1])
            elif code == 0x4B:  # BININT1
                if p >= end:
                    raise _Handed
                stack.append(<long> p[0])
                p += 1
            elif code == 0x4D:  # BININT2
                if end - p < 2:
                    raise _Handed
                memcpy(&small, p, 2)
                stack.append(<long> small)
                p += 2
            elif code == 0x4A:  # BININT
                if end - p < 4:
                    raise _Handed
                memcpy(&number, p, 4)
                stack.append(<long> number)
                p += 4
            elif code == 0x8A:  # LONG1
                if p >= end or p[0] > end - p - 1:
                    raise _Handed
                stack.append(int.from_bytes(p[1 : 1 + p[0]], "little", signed=True))
                p += 1 + p[0]
            elif code == 0x47:  # BINFLOAT
                if end - p < 8:
                    raise _Handed
                memcpy(&bits, p, 8)
                bits = swapped64(bits)
                memcpy(&real, &bits, 8)
                stack.append(real)
                p += 8
            elif code == 0x4E:  # NONE
                stack.append(None)
            elif code == 0x88:  # NEWTRUE
                stack.append(True)
            elif code == 0x89:  # NEWFALSE
                stack.append(False)
            elif code == 0x5D:  # EMPTY_LIST
                stack.append([])
            elif code == 0x29:  # EMPTY_TUPLE
                stack.append(())
            elif code == 0x7D:  # EMPTY_DICT
                stack.append(self.table())
            elif code == 0x28:  # MARK
                marks.append(base)
                base = len(stack)
            elif code == 0x85 or code == 0x86 or code == 0x87:  # TUPLE1, TUPLE2, TUPLE3
                place = len(stack) - (code - 0x84)
                if place < base:
                    raise _Handed
                found = tuple(stack[place:])
                del stack[place:]
                stack.append(found)
            elif code == 0x74 or code == 0x65 or code == 0x75:  # TUPLE, APPENDS, SETITEMS
                if not marks:
                    raise _Handed
                above = stack[base:]
                del stack[base:]
                base = marks.pop()
                if code == 0x74:
                    stack.append(tuple(above))
                elif len(stack) <= base:
                    raise _Handed
                elif code == 0x65:
                    self._extend(stack[len(stack) - 1], above)
                else:
                    self._put(stack[len(stack) - 1], above)
            elif code == 0x61 or code == 0x73:  # APPEND, SETITEM
                place = len(stack) - (1 if code == 0x61 else 2)
                if place <= base:
                    raise _Handed
                above = stack[place:]
                del stack[place:]
                if code == 0x61:
                    self._extend(stack[place - 1], above)
                else:
                    self._put(stack[place - 1], above)
            elif code == 0x93 or code == 0x63:  # STACK_GLOBAL, GLOBAL
                if code == 0x93:
                    place = len(stack) - 2
                    if place < base:
                        raise _Handed
                    key = (stack[place], stack[place + 1])
                    del stack[place:]
                else:
                    lines = p[: min(<Py_ssize_t> LONGEST_NAMES, end - p)].split(b"\n", 2)
                    if len(lines) < 3 or not (_is_name(lines[0]) and _is_name(lines[1])):
                        raise _Handed
                    p += len(lines[0]) + len(lines[1]) + 2
                    key = (lines[0].decode("ascii"), lines[1].decode("ascii"))
                stack.append(self._global(key))
            elif code == 0x52 or code == 0x81:  # REDUCE, NEWOBJ
                place = len(stack) - 2
                if place < base:
                    raise _Handed
                found = self._call(stack[place], stack[place + 1])
                del stack[place:]
                stack.append(found)
            elif code == 0x62:  # BUILD
                place = len(stack) - 2
                if place < base or type(stack[place]) is not self.made or self._is_kept(stack[place]):
                    raise _Handed
                stack[place].state = stack.pop()
            elif code == 0x80:  # PROTO
                if p >= end:
                    raise _Handed
                p += 1
            elif code == 0x95:  # FRAME
                if end - p < 8:
                    raise _Handed
                p += 8
            elif code == 0x2E:  # STOP
                if p != end or marks or len(stack) != 1:
                    raise _Handed
                return stack[0]
            else:
                raise _Handed
        raise _Handed

    cdef object _global(self, tuple key):
        found = self.globals.get(key) if type(key[0]) is str and type(key[1]) is str else None
        if found is None:
            try:
                found = self.resolve(*key)
            except ValueError:
                raise _Handed from None
            self.globals[key] = found
        return found

    cdef object _call(self, target, arguments):
        if type(target) is not self.global_ or type(arguments) is not tuple:
            raise _Handed
        name = target.name
        if name not in self.converted:
            return self.made(name, arguments)
        found = self.make(target, arguments)
        if type(found) is bytes or type(found) is bytearray:
            raise _Handed  # the text that calls make is counted
        return found

    cdef Part _part(self, tuple name, list memo):
        """Return the value of the opcodes that are kept under this name; None if they use other texts here."""
        cdef Part part = <Part> self.parts.get(name)
        if part is not None:
            for place, text in part.outside:
                held = memo[<Py_ssize_t> place]
                if type(held) is not str or held != text:
                    return None
        return part

    cdef int _keep(self, tuple name, value, list memo, list outside) except -1:
        """Keep the value that opcodes make."""
        cdef Part part = Part.__new__(Part)
        if type(value) is not self.made:
            return 0
        self.values, self.text, self.height = 0, 0, 0
        self._weigh(value, 0)
        part.value, part.memo, part.outside = value, memo, outside
        part.values, part.text, part.height = self.values, self.text, self.height
        if len(self.parts) >= MOST_PARTS:
            self.parts.clear()
        self.parts[name] = part
        self.part = part
        return 0

    cdef bint _is_kept(self, value):
        """Whether a value is, or is within, the one that is kept: then it must stay as it is."""
        if self.part is None:
            return False
        if value is self.part.value:
            return True
        for one in self.part.memo:
            if value is one:
                return True
        return False

    cdef int _extend(self, target, list found) except -1:
        if self._is_kept(target):
            raise _Handed
        if type(target) is list:
            (<list> target).extend(found)
        elif type(target) is self.made:
            target.items.extend(found)
        else:
            raise _Handed
        return 0

    cdef int _put(self, target, list found) except -1:
        cdef Py_ssize_t index
        cdef list pairs
        if self._is_kept(target):
            raise _Handed
        if len(found) % 2 or (type(target) is not self.table and type(target) is not self.made):
            raise _Handed
        pairs = target.pairs
        for index in range(0, len(found), 2):
            pairs.append((found[index], found[index + 1]))
        return 0

    cdef int _weigh(self, value, int depth) except -1:
        """Count values and texts as a tree, and leave what comes near a limit to the Python reader."""
        cdef Part part = self.part
        if part is not None and value is part.value:
            self.values += part.values
            self.text += part.text
            if depth + part.height > DEEPEST or self.values > MOST_VALUES or self.text > MOST_TEXT:
                raise _Handed
            return 0
        self.values += 1
        if depth > DEEPEST or self.values > MOST_VALUES:
            raise _Handed
        if depth > self.height:
            self.height = depth
        kind = type(value)
        if kind is str or kind is bytes or kind is bytearray:
            self.text += len(value)
            if self.text > MOST_TEXT:
                raise _Handed
        elif kind is tuple:
            for one in <tuple> value:
                self._weigh(one, depth + 1)
        elif kind is list:
            for one in <list> value:
                self._weigh(one, depth + 1)
        elif kind is self.table:
            for one in <list> value.pairs:
                self._weigh(one, depth + 1)
        elif kind is self.made:
            self._weigh(value.arguments, depth + 1)
            self._weigh(value.state, depth + 1)
            self._weigh(value.items, depth + 1)
            self._weigh(value.pairs, depth + 1)
        return 0
