"""Replies of MongoDB to ``find`` and ``getMore``: the documents of a batch are taken out with one copy of their bytes.

A batch is an array, in which each document follows its key. What reads documents takes them one after the other.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from migrator_speedups.bson_values cimport ARRAY, DOCUMENT, little32, value_size

cdef enum:
    LENGTH_SIZE = 4
    EMPTY_SIZE = 5  # of a document, or an array, without members

cdef struct Member:
    uint8_t kind
    const uint8_t* name
    size_t name_size
    const uint8_t* value
    size_t size  # of the value


def without_documents(reply):
    """Return the reply with an empty batch, and its documents one after the other.

    None for bytes that are no document, or none with an array of whole documents as the first or the next batch.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(reply, &view, PyBUF_SIMPLE)
    try:
        return _without_documents(<const uint8_t*> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef object _without_documents(const uint8_t* reply, size_t size):
    cdef Member cursor, batch
    if size < EMPTY_SIZE or <size_t> little32(reply) != size:
        return None
    if not _find(reply, size, DOCUMENT, b"cursor", &cursor):
        return None
    if not _find(cursor.value, cursor.size, ARRAY, b"firstBatch", &batch):
        if not _find(cursor.value, cursor.size, ARRAY, b"nextBatch", &batch):
            return None
    documents = _documents(batch.value, batch.size)
    return None if documents is None else (_emptied(reply, size, &cursor, &batch), documents)


cdef bint _read(const uint8_t* place, const uint8_t* end, Member* member) noexcept:
    """Whether a member begins here that ends before ``end``; it is read then."""
    cdef const uint8_t* closed
    cdef int64_t size
    if place >= end:
        return False
    member.kind = place[0]
    member.name = place + 1
    closed = <const uint8_t*> memchr(member.name, 0, end - member.name)
    if closed is NULL:
        return False
    member.name_size = closed - member.name
    member.value = closed + 1
    size = value_size(member.kind, member.value, end - member.value)
    if size < 0:
        return False
    member.size = size
    return True


cdef bint _find(const uint8_t* document, size_t size, uint8_t kind, bytes name, Member* member):
    """Whether a document has a member of this name and type; it is read then."""
    cdef const uint8_t* place = document + LENGTH_SIZE
    cdef const uint8_t* end = document + size - 1
    cdef const char* wanted = PyBytes_AS_STRING(name)
    while _read(place, end, member):
        if member.name_size == <size_t> len(name) and memcmp(member.name, wanted, member.name_size) == 0:
            return member.kind == kind
        place = member.value + member.size
    return False


cdef object _documents(const uint8_t* array, size_t size):
    """Return the members one after the other; None if one of them is no whole document."""
    cdef const uint8_t* place = array + LENGTH_SIZE
    cdef const uint8_t* end = array + size - 1
    cdef size_t used = 0
    cdef Member member
    cdef uint8_t* written
    while place < end:
        if not _read(place, end, &member) or member.kind != DOCUMENT:
            return None
        used += member.size
        place = member.value + member.size
    documents = PyBytes_FromStringAndSize(NULL, used)
    written = <uint8_t*> PyBytes_AS_STRING(documents)
    place = array + LENGTH_SIZE
    while place < end:
        _read(place, end, &member)
        memcpy(written, member.value, member.size)
        written += member.size
        place = member.value + member.size
    return documents


cdef bytes _emptied(const uint8_t* reply, size_t size, Member* cursor, Member* batch):
    """Return the reply with an array without members as the batch."""
    cdef size_t less = batch.size - EMPTY_SIZE
    cdef size_t before = batch.value - reply
    cdef size_t behind = size - before - batch.size
    cdef bytes emptied = PyBytes_FromStringAndSize(NULL, size - less)
    cdef uint8_t* written = <uint8_t*> PyBytes_AS_STRING(emptied)
    memcpy(written, reply, before)
    memcpy(written + before, b"\5\0\0\0\0", EMPTY_SIZE)
    memcpy(written + before + EMPTY_SIZE, batch.value + batch.size, behind)
    _put_size(written, size - less)
    _put_size(written + (cursor.value - reply), cursor.size - less)
    return emptied


cdef void _put_size(uint8_t* place, size_t size) noexcept:
    cdef int32_t value = <int32_t> size
    memcpy(place, &value, LENGTH_SIZE)
