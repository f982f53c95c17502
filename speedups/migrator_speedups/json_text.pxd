"""JSON text in PostgreSQL's own spelling, from BSON and back: the C interface for the other modules."""

cimport cython
from libc.stdint cimport uint8_t
from libc.string cimport memcpy


cdef struct Node


@cython.final
cdef class Buffer:
    """Bytes that grow at the end. A pointer into ``data`` is void after the next ``reserve``."""

    cdef uint8_t* data
    cdef size_t used
    cdef size_t allotted

    cdef int grow(self, size_t more) except -1

    # Room for ``more`` bytes after ``used``.
    cdef inline int reserve(self, size_t more) except -1:
        if self.allotted - self.used < more:
            self.grow(more)
        return 0

    cdef inline int append(self, const void* source, size_t size) except -1:
        self.reserve(size)
        memcpy(self.data + self.used, source, size)
        self.used += size
        return 0


@cython.final
cdef class Shape:
    """A compiled shape. What ``node`` points to lives as long as it does."""

    cdef Node* node
    cdef list kept


# Append the canonical jsonb text of a BSON value. Return 1, or 0 for a value that is for the Python codec: then ``out``
# has the length that it had.
# kind: the BSON type. size: bytes of the value; none after them is read. shape: None takes any value.
cdef int write_json(Buffer out, uint8_t kind, const uint8_t* value, size_t size, Shape shape) except -1

# Append the text that Python's json.dumps makes of a BSON value: members in their order, ASCII alone. Return 1, or 0 for a
# value that Python would not read back from it byte for byte, or that Kombu writes otherwise: then ``out`` has the length
# that it had.
cdef int write_python_json(Buffer out, uint8_t kind, const uint8_t* value, size_t size) except -1

# Append the BSON value of a canonical jsonb text. Return its BSON type, or 0 if the text is not of the shape: then
# ``out`` has the length that it had.
# kind, source, source_size: the BSON value that the text was made of; it gives nothing but the order in which members
# of free documents stand.
cdef int write_bson(
    Buffer out,
    const uint8_t* text,
    size_t size,
    Shape shape,
    uint8_t kind,
    const uint8_t* source,
    size_t source_size,
) except -1

# Append a text as PostgreSQL spells it. Return 0 for one with NUL or that is not UTF-8.
cdef int _write_text(Buffer out, const uint8_t* text, size_t size) except -1
