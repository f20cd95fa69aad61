/* Compressed bodies, by way of compression.inflate, which knows the codecs and their limits. */

#include "memory.h"
#include "native.h"

static PyObject *inflate, *bad_compression; /* of asyncconsumer.wire.compression */
static PyObject *spare_room; /* a bytearray for the next walk: warm, and nothing needs clearing */

enum { LARGEST_SPARE_ROOM = 4 << 20 };

int inflate_prepare(void)
{
    PyObject *compression = PyImport_ImportModule("asyncconsumer.wire.compression");
    if (compression != NULL) {
        inflate = PyObject_GetAttrString(compression, "inflate");
        bad_compression = PyObject_GetAttrString(compression, "BadCompression");
        Py_DECREF(compression);
    }
    return inflate && bad_compression ? 0 : -1;
}

void inflate_let_go(Records *self)
{
    PyObject *room = self->room;
    self->room = NULL;
    if (room == NULL)
        return;
    if (spare_room == NULL && PyByteArray_GET_SIZE(room) <= LARGEST_SPARE_ROOM)
        spare_room = room;
    else
        Py_DECREF(room);
}

static int have_room(Records *self)
{
    if (self->room == NULL) {
        self->room = spare_room ? spare_room : PyByteArray_FromStringAndSize(NULL, 0);
        spare_room = NULL;
    }
    return self->room ? 0 : -1;
}

/* Moves what is left of the inflated body to memory of its own, that others may keep. */
int inflate_lend(Records *self)
{
    Buffer copy = {NULL, 0, 0};
    int64_t size = self->body_end - self->record;
    PyObject *body = NULL;
    if (size == 0 || buffer_append(&copy, self->record, size) == 0)
        body = buffer_finish(&copy);
    buffer_drop(&copy);
    if (body == NULL)
        return -1;
    Py_XSETREF(self->body, body);
    self->record = (const uint8_t *)((Slab *)body)->memory.start;
    self->body_end = self->record + size;
    return PyList_Append(self->lent, body);
}

static int translate_bad_compression(Records *self, int64_t resume)
{
    if (!PyErr_ExceptionMatches(bad_compression))
        return -1;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *reason = error ? PyObject_Str(error) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    if (reason != NULL) {
        walk_corrupt_because(self, resume, reason);
        Py_DECREF(reason);
    }
    return -1;
}

/* The inflated bytes become the body in hand. Python runs here, and other threads may: `busy` is set. */
int inflate_body(Records *self, int64_t resume, int codec, const uint8_t *at, int64_t length)
{
    if (have_room(self) < 0)
        return -1;
    PyObject *source = PyMemoryView_FromMemory((char *)at, length, PyBUF_READ);
    if (source == NULL)
        return -1;
    PyObject *used = PyObject_CallFunction(inflate, "iOOL", codec, source, self->room,
                                           (long long)self->max_inflated);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    Py_XDECREF(traceback); /* its frames would keep slices of `source` beyond our buffer's life */
    PyObject *released = PyObject_CallMethod(source, "release", NULL);
    Py_XDECREF(released);
    Py_DECREF(source);
    PyErr_Restore(type, error, NULL);
    if (used == NULL)
        return translate_bad_compression(self, resume);
    Py_ssize_t size = PyLong_AsSsize_t(used);
    Py_DECREF(used);
    if (size < 0 || size > PyByteArray_GET_SIZE(self->room)) {
        PyErr_SetString(PyExc_SystemError, "inflate() claims more than there is room for");
        return -1;
    }
    self->inflated = true;
    self->inflated_bytes += size;
    self->record = (const uint8_t *)PyByteArray_AS_STRING(self->room);
    self->body_end = self->record + size;
    return self->lent != NULL ? inflate_lend(self) : 0;
}
