/* RecordEncoder: the records of a batch, as a producer writes them. See asyncconsumer.records.record_encoder, the
   same in Python. */

#include "native.h"

#include "memory.h"

#include <structmember.h>

enum { MAX_BYTES = INT32_MAX - 128 };

typedef struct {
    PyObject_HEAD
    Buffer memory;
    Py_ssize_t count;
    long long first_timestamp, max_timestamp;
} RecordEncoder;

static inline uint64_t zigzag(int64_t number) { return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63); }

static inline int varint_size(int64_t number)
{
    uint64_t rest = zigzag(number);
    int size = 1;
    while (rest >>= 7)
        size++;
    return size;
}

static inline uint8_t *put_varint(uint8_t *position, int64_t number)
{
    uint64_t rest = zigzag(number);
    while (rest > 0x7F) {
        *position++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *position++ = (uint8_t)rest;
    return position;
}

static inline uint8_t *put_bytes(uint8_t *position, const char *data, Py_ssize_t length)
{
    position = put_varint(position, length);
    memcpy(position, data, (size_t)length);
    return position + length;
}

static inline uint8_t *put_part(uint8_t *position, PyObject *part)
{
    return part == Py_None ? put_varint(position, -1)
                           : put_bytes(position, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
}

static inline Py_ssize_t part_size(PyObject *part)
{
    return part == Py_None ? 1 : varint_size(PyBytes_GET_SIZE(part)) + PyBytes_GET_SIZE(part);
}

static int check_part(PyObject *part, const char *name)
{
    if (part == Py_None || PyBytes_Check(part))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s must be bytes or None, not %.100s", name, Py_TYPE(part)->tp_name);
    return -1;
}

/* Returns the size of all headers, or -1 with an exception. It runs no Python code, so the headers cannot change
   before they are written. */
static Py_ssize_t headers_size(PyObject *headers)
{
    if (!PyTuple_Check(headers) && !PyList_Check(headers)) {
        PyErr_Format(PyExc_TypeError, "headers must be a tuple or a list, not %.100s", Py_TYPE(headers)->tp_name);
        return -1;
    }
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(headers); i++) {
        PyObject *header = PySequence_Fast_GET_ITEM(headers, i);
        if (!PyTuple_Check(header) || PyTuple_GET_SIZE(header) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(header, 0))) {
            PyErr_SetString(PyExc_TypeError, "a header must be a tuple of a name and bytes or None");
            return -1;
        }
        Py_ssize_t length;
        if (PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(header, 0), &length) == NULL
            || check_part(PyTuple_GET_ITEM(header, 1), "the value of a header") < 0)
            return -1;
        size += varint_size(length) + length + part_size(PyTuple_GET_ITEM(header, 1));
    }
    return size;
}

static uint8_t *put_headers(uint8_t *position, PyObject *headers)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(headers);
    position = put_varint(position, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *header = PySequence_Fast_GET_ITEM(headers, i);
        Py_ssize_t length;
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(header, 0), &length); /* cached by headers_size() */
        position = put_bytes(position, name, length);
        position = put_part(position, PyTuple_GET_ITEM(header, 1));
    }
    return position;
}

static PyObject *encoder_append(RecordEncoder *self, PyObject *const *args, Py_ssize_t argument_count)
{
    if (argument_count != 4) {
        PyErr_Format(PyExc_TypeError, "append() takes 4 arguments, got %zd", argument_count);
        return NULL;
    }
    PyObject *key = args[1], *value = args[2], *headers = args[3];
    long long timestamp = PyLong_AsLongLong(args[0]);
    if ((timestamp == -1 && PyErr_Occurred()) || check_part(key, "key") < 0 || check_part(value, "value") < 0)
        return NULL;
    if (timestamp < 0) {
        PyErr_Format(PyExc_ValueError, "timestamp_ms must not be negative, got %lld", timestamp);
        return NULL;
    }
    Py_ssize_t headers_bytes = headers_size(headers);
    if (headers_bytes < 0)
        return NULL;
    int64_t delta = self->count ? timestamp - self->first_timestamp : 0;
    Py_ssize_t size = 1 + varint_size(delta) + varint_size(self->count) + part_size(key) + part_size(value)
                      + varint_size(PySequence_Fast_GET_SIZE(headers)) + headers_bytes;
    if (size > MAX_BYTES - self->memory.used) {
        PyErr_SetString(PyExc_ValueError, "the records of a batch are larger than 2 GiB");
        return NULL;
    }
    uint8_t *position = (uint8_t *)buffer_extend(&self->memory, varint_size(size) + size);
    if (position == NULL)
        return NULL;
    position = put_varint(position, size);
    *position++ = 0; /* attributes */
    position = put_varint(position, delta);
    position = put_varint(position, self->count);
    position = put_part(position, key);
    position = put_part(position, value);
    put_headers(position, headers);
    if (self->count++ == 0)
        self->first_timestamp = self->max_timestamp = timestamp;
    else if (timestamp > self->max_timestamp)
        self->max_timestamp = timestamp;
    return PyLong_FromSsize_t(self->memory.used);
}

static PyObject *encoder_body(RecordEncoder *self, PyObject *unused)
{
    return PyBytes_FromStringAndSize(self->memory.start, self->memory.used);
}

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, ":RecordEncoder", names))
        return NULL;
    RecordEncoder *self = (RecordEncoder *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->first_timestamp = self->max_timestamp = -1;
    return (PyObject *)self;
}

static void encoder_dealloc(RecordEncoder *self)
{
    buffer_free(&self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef encoder_methods[] = {
    {"append", (PyCFunction)(void (*)(void))encoder_append, METH_FASTCALL,
     "append(timestamp_ms, key, value, headers, /)\n--\n\n"
     "Encode one more record. Return the total size of all records in bytes.\n\n"
     "Raise TypeError or ValueError for a value of a wrong type or size."},
    {"body", (PyCFunction)encoder_body, METH_NOARGS, "body()\n--\n\nReturn the encoded records."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef encoder_members[] = {
    {"count", T_PYSSIZET, offsetof(RecordEncoder, count), READONLY, NULL},
    {"size", T_PYSSIZET, offsetof(RecordEncoder, memory) + offsetof(Buffer, used), READONLY, NULL},
    {"first_timestamp", T_LONGLONG, offsetof(RecordEncoder, first_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(RecordEncoder, max_timestamp), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject RecordEncoder_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.RecordEncoder",
    .tp_doc = "An encoder of the records of one record batch. Records are appended one by one.",
    .tp_basicsize = sizeof(RecordEncoder),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = encoder_new,
    .tp_dealloc = (destructor)encoder_dealloc,
    .tp_methods = encoder_methods,
    .tp_members = encoder_members,
};

int encoder_prepare(PyObject *module) { return PyModule_AddType(module, &RecordEncoder_Type); }

/* The key hash of Kafka's own clients. */
PyObject *murmur2(PyObject *module, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *bytes = view.buf;
    size_t length = (size_t)view.len;
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)length;
    for (; length >= 4; bytes += 4, length -= 4) {
        uint32_t k = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        k *= m;
        k ^= k >> 24;
        hash = hash * m ^ k * m;
    }
    if (length > 2)
        hash ^= (uint32_t)bytes[2] << 16;
    if (length > 1)
        hash ^= (uint32_t)bytes[1] << 8;
    if (length > 0)
        hash = (hash ^ bytes[0]) * m;
    hash = (hash ^ hash >> 13) * m;
    hash ^= hash >> 15;
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(hash);
}
