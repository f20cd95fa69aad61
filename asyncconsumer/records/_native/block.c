/* RecordBlock. See asyncconsumer.records.record_block, the same in Python. */

#include "block.h"

#include <stddef.h>
#include <structmember.h>

enum { RECORD_OVERHEAD = 200, HEADER_OVERHEAD = 100, MIN_CAPACITY = 16 };

/* --- sizes -------------------------------------------------------------------------------------------- */

static int64_t length_of(PyObject *data) { return PyBytes_CheckExact(data) ? PyBytes_GET_SIZE(data) : 0; }

static int64_t size_of_headers(PyObject *headers)
{
    int64_t size = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(headers); i++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, i);
        size += HEADER_OVERHEAD + PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(pair, 0))
                + length_of(PyTuple_GET_ITEM(pair, 1));
    }
    return size;
}

static int64_t size_of(const Record *record)
{
    return RECORD_OVERHEAD + length_of(record->value) + length_of(record->key) + size_of_headers(record->headers);
}

/* --- filling ------------------------------------------------------------------------------------------ */

static int reserve(RecordBlock *self, Py_ssize_t count)
{
    if (count <= self->capacity)
        return 0;
    Py_ssize_t capacity = self->capacity ? 2 * self->capacity : MIN_CAPACITY;
    int64_t *ends = PyMem_Realloc(self->ends, (size_t)capacity * sizeof(int64_t));
    if (ends == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->ends = ends;
    self->capacity = capacity;
    return 0;
}

static inline int64_t size_until(const RecordBlock *self, Py_ssize_t index)
{
    return index ? self->ends[index - 1] : 0;
}

static int append(RecordBlock *self, PyObject *record)
{
    if (!Py_IS_TYPE(record, &Record_Type)) {
        PyErr_Format(PyExc_TypeError, "a block must contain Record objects, not %.100s", Py_TYPE(record)->tp_name);
        return -1;
    }
    if (reserve(self, self->count + 1) < 0 || PyList_Append(self->records, record) < 0)
        return -1;
    self->ends[self->count] = size_until(self, self->count) + size_of((Record *)record);
    self->count++;
    return 0;
}

static bool is_full(const RecordBlock *self, Py_ssize_t max_count, double max_size)
{
    return self->count >= max_count || (double)size_until(self, self->count) >= max_size;
}

static PyObject *block_fill(RecordBlock *self, PyObject *args)
{
    PyObject *source;
    Py_ssize_t max_count;
    double max_size;
    if (!PyArg_ParseTuple(args, "Ond:fill", &source, &max_count, &max_size))
        return NULL;
    PyObject *iterator = PyObject_GetIter(source);
    if (iterator == NULL)
        return NULL;
    bool full;
    PyObject *record;
    while (!(full = is_full(self, max_count, max_size)) && (record = PyIter_Next(iterator)) != NULL) {
        int appended = append(self, record);
        Py_DECREF(record);
        if (appended < 0)
            break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(full);
}

static PyObject *block_size_between(RecordBlock *self, PyObject *args)
{
    Py_ssize_t start, stop;
    if (!PyArg_ParseTuple(args, "nn:size_between", &start, &stop))
        return NULL;
    if (start < 0 || stop > self->count || start > stop) {
        PyErr_SetString(PyExc_IndexError, "the block has no such records");
        return NULL;
    }
    return PyLong_FromLongLong(size_until(self, stop) - size_until(self, start));
}

/* --- the object --------------------------------------------------------------------------------------- */

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, ":RecordBlock", names))
        return NULL;
    RecordBlock *self = (RecordBlock *)type->tp_alloc(type, 0);
    if (self != NULL && (self->records = PyList_New(0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* Records cannot be part of a cycle, but Python code can append other objects to the list. */
static int block_traverse(RecordBlock *self, visitproc visit, void *arg)
{
    Py_VISIT(self->records);
    return 0;
}

static void block_dealloc(RecordBlock *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->records);
    PyMem_Free(self->ends);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef block_methods[] = {
    {"fill", (PyCFunction)block_fill, METH_VARARGS,
     "fill(records, max_count, max_size, /)\n--\n\n"
     "Append records, until there are `max_count`, or until their size is `max_size` bytes.\n\n"
     "The last record may exceed `max_size`. Return whether one of the limits was reached. If the\n"
     "iteration raises an error, the block has the records before it."},
    {"size_between", (PyCFunction)block_size_between, METH_VARARGS,
     "size_between(start, stop, /)\n--\n\n"
     "Return the approximate size in memory of the records from `start` up to `stop`."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef block_members[] = {
    {"records", T_OBJECT_EX, offsetof(RecordBlock, records), READONLY, "All records, in the order of their offsets."},
    {"index", T_PYSSIZET, offsetof(RecordBlock, index), 0,
     "Processing of the records from this index on has not started."},
    {"counted", T_PYSSIZET, offsetof(RecordBlock, counted), 0, "Records before this index are not in flight any more."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject RecordBlock_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.RecordBlock",
    .tp_doc = PyDoc_STR("RecordBlock()\n--\n\nRecords of one partition that were taken together.\n\n"
                        "See asyncconsumer.records.record_block.RecordBlock, the same in Python."),
    .tp_basicsize = sizeof(RecordBlock),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = block_new,
    .tp_dealloc = (destructor)block_dealloc,
    .tp_traverse = (traverseproc)block_traverse,
    .tp_methods = block_methods,
    .tp_members = block_members,
};

int block_prepare(PyObject *module) { return PyModule_AddType(module, &RecordBlock_Type); }
