"""BSON as more than one module reads it: types, sizes and texts.

No byte after the room that a function is given is read.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    DOUBLE = 0x01
    TEXT = 0x02
    DOCUMENT = 0x03
    ARRAY = 0x04
    BINARY = 0x05
    OBJECT_ID = 0x07
    FLAG = 0x08
    DATE = 0x09
    NULL_VALUE = 0x0A
    INT32 = 0x10
    TIMESTAMP = 0x11
    INT64 = 0x12


cdef inline int32_t little32(const uint8_t* place) noexcept:
    cdef int32_t value
    memcpy(&value, place, 4)
    return value


cdef inline int64_t little64(const uint8_t* place) noexcept:
    cdef int64_t value
    memcpy(&value, place, 8)
    return value


cdef inline bint is_text(const uint8_t* text, size_t size) noexcept:
    """Whether the bytes are UTF-8 as Python reads it, without NUL."""
    cdef size_t i = 0
    cdef uint64_t word
    cdef uint8_t c, d
    while i < size:
        if i + 8 <= size:
            memcpy(&word, text + i, 8)
            if not word & <uint64_t> 0x8080808080808080 and not (
                (word - <uint64_t> 0x0101010101010101) & ~word & <uint64_t> 0x8080808080808080
            ):
                i += 8
                continue
        c = text[i]
        if c < 0x80:
            if c == 0:
                return False
            i += 1
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        if i + 1 >= size:
            return False
        d = text[i + 1]
        if c < 0xE0:
            if d & 0xC0 != 0x80:
                return False
            i += 2
        elif c < 0xF0:
            if i + 2 >= size or d & 0xC0 != 0x80 or text[i + 2] & 0xC0 != 0x80:
                return False
            if c == 0xE0 and d < 0xA0 or c == 0xED and d >= 0xA0:
                return False
            i += 3
        else:
            if i + 3 >= size or d & 0xC0 != 0x80 or text[i + 2] & 0xC0 != 0x80 or text[i + 3] & 0xC0 != 0x80:
                return False
            if c == 0xF0 and d < 0x90 or c == 0xF4 and d >= 0x90:
                return False
            i += 4
    return True


cdef inline int64_t value_size(uint8_t kind, const uint8_t* value, size_t room) noexcept:
    """Return the bytes of a value, all of them within the room; -1 for a type that is for the Python codec."""
    cdef int64_t size
    if kind == INT32:
        size = 4
    elif kind == DOUBLE or kind == DATE or kind == INT64 or kind == TIMESTAMP:
        size = 8
    elif kind == FLAG:
        size = 1
    elif kind == NULL_VALUE:
        size = 0
    elif kind == OBJECT_ID:
        size = 12
    elif kind == TEXT or kind == DOCUMENT or kind == ARRAY or kind == BINARY:
        if room < 4:
            return -1
        size = little32(value)
        if kind == TEXT:
            if size < 1:
                return -1
            size += 4
        elif kind == BINARY:
            if size < 0:
                return -1
            size += 5
        elif size < 5:
            return -1
    else:
        return -1
    return size if size <= <int64_t> room else -1
