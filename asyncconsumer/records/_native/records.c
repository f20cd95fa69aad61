/* Records: the iterator over the record set of one partition, as a fetch response carries it. */

#include "native.h"

#include <stddef.h>
#include <structmember.h>

int records_enter(Records *self)
{
    if (self->busy) {
        self->paused = NOT_PAUSED;
        PyErr_SetString(PyExc_RuntimeError, "these Records are being read by another thread, or by the code "
                                            "that a finalizer interrupts");
        return -1;
    }
    self->busy = true;
    return 0;
}

bool records_pause_while_preparing(Records *self)
{
    if (!self->preparing || !self->cooperative)
        return false;
    self->paused = self->closing ? NOT_PAUSED : PAUSED_FOR_BODY;
    return true;
}

static inline PyObject *next_record(Records *self)
{
    ParsedRecord parsed;
    if (walk_next(self, &parsed) <= 0)
        return NULL;
    PyObject *record = record_create(self->topic, self->partition, &parsed);
    if (record == NULL) /* without memory: the next call parses it again */
        walk_unread(self, &parsed);
    else
        self->returned_offset = parsed.offset;
    return record;
}

PyObject *records_next(Records *self)
{
    if (records_pause_while_preparing(self) || records_enter(self) < 0)
        return NULL;
    PyObject *record = next_record(self);
    records_leave(self);
    return record;
}

bool records_begin_read(Records *self, ParsedRecord *parsed)
{
    if (records_pause_while_preparing(self) || records_enter(self) < 0)
        return false;
    self->pinned = walk_next(self, parsed) > 0;
    if (self->pinned)
        self->returned_offset = parsed->offset;
    else
        records_leave(self);
    return self->pinned;
}

static void close_now(Records *self)
{
    Py_CLEAR(self->error); /* a stored error is dropped as well */
    walk_release(self);
}

void records_end_read(Records *self, const ParsedRecord *put_back)
{
    if (put_back != NULL)
        walk_unread(self, put_back);
    self->pinned = false;
    if (self->closing) {
        self->closing = false;
        close_now(self);
    }
    records_leave(self);
}

/* --- creation and deallocation ----------------------------------------------------------------------- */

/* Converts pairs of (producer id, first offset) to a sorted list of pairs of (first offset, producer id). */
static PyObject *sorted_aborted(PyObject *pairs)
{
    PyObject *items = PySequence_List(pairs);
    for (Py_ssize_t i = 0; items != NULL && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PySequence_Tuple(PyList_GET_ITEM(items, i)), *swapped = NULL;
        long long producer, first;
        if (pair != NULL && PyArg_ParseTuple(pair, "LL;`aborted` must contain pairs of producer id and first offset",
                                             &producer, &first))
            swapped = Py_BuildValue("(LL)", first, producer);
        Py_XDECREF(pair);
        if (swapped == NULL)
            Py_CLEAR(items);
        else
            PyList_SetItem(items, i, swapped);
    }
    if (items != NULL && PyList_Sort(items) < 0)
        Py_CLEAR(items);
    return items;
}

static int parse_options(Records *self, PyObject *args, PyObject *keywords, PyObject **data)
{
    static char *names[] = {"data", "topic", "partition", "offset", "end", "aborted", "check_crc",
                            "max_decompressed_bytes", "max_batch", "bodies", NULL};
    PyObject *topic = NULL, *partition = NULL, *aborted = Py_None, *bodies = Py_None;
    int check_crc = 1;
    long long offset = 0, end = INT64_MAX, max_decompressed_bytes = 64 << 20, max_batch = 128 << 20;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$UO!LLOpLLO:Records", names, data, &topic,
                                     &PyLong_Type, &partition, &offset, &end, &aborted, &check_crc,
                                     &max_decompressed_bytes, &max_batch, &bodies))
        return -1;
    if (topic == NULL || partition == NULL) {
        PyErr_SetString(PyExc_TypeError, "Records() needs topic and partition");
        return -1;
    }
    if (offset < 0 || max_decompressed_bytes < 0 || max_batch < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "`offset`, `max_decompressed_bytes` and `max_batch` must not be negative");
        return -1;
    }
    self->topic = PyUnicode_FromObject(topic);
    long partition_number = PyLong_AsLong(partition);
    if (partition_number == -1 && PyErr_Occurred())
        return -1;
    self->partition = PyLong_FromLong(partition_number); /* an instance of a subclass could be part of a cycle */
    self->next_offset = offset;
    self->end_offset = end;
    self->check_crc = check_crc;
    self->max_decompressed_bytes = max_decompressed_bytes;
    self->max_batch = max_batch;
    self->leader_epoch = -1;
    if (bodies != Py_None)
        self->bodies = Py_NewRef(bodies);
    if (aborted != Py_None) {
        self->aborted = sorted_aborted(aborted);
        self->aborted_producers = PySet_New(NULL);
        if (self->aborted == NULL || self->aborted_producers == NULL)
            return -1;
    }
    return self->topic && self->partition ? 0 : -1;
}

/* Acquires the buffer of `data`. If `data` is a memoryview, acquires the buffer of its base object.

   The garbage collector may clear a memoryview in a cycle before these Records. That is a fatal error while its
   buffer is in use. The base object cannot be part of a cycle. */
static int acquire_buffer(Records *self, PyObject *data)
{
    if (PyObject_GetBuffer(data, &self->view, PyBUF_SIMPLE) < 0)
        return -1;
    self->next_entry = self->view.buf;
    self->size = self->view.len;
    self->end = self->next_entry + self->size;
    PyObject *base = PyMemoryView_Check(data) ? PyMemoryView_GET_BASE(data) : NULL;
    if (base == NULL)
        return 0;
    Py_buffer base_view;
    if (PyObject_GetBuffer(base, &base_view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear(); /* without a contiguous buffer, keep that of the memoryview */
        return 0;
    }
    PyBuffer_Release(&self->view);
    self->view = base_view;
    return 0;
}

static PyObject *records_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *data;
    Records *self = (Records *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    if (parse_options(self, args, keywords, &data) < 0 || acquire_buffer(self, data) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int records_traverse(Records *self, visitproc visit, void *arg)
{
    Py_VISIT(self->view.obj);
    Py_VISIT(self->error); /* the frames of its traceback may refer to this object */
    Py_VISIT(self->shared_bodies);
    Py_VISIT(self->bodies);
    return 0;
}

static int records_clear(Records *self)
{
    Py_CLEAR(self->bodies); /* `bodies` notices the deallocation by a weak reference, and must not be called here */
    walk_release(self);
    Py_CLEAR(self->error);
    Py_CLEAR(self->shared_bodies);
    return 0;
}

static void records_dealloc(Records *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    records_clear(self);
    Py_CLEAR(self->topic);
    Py_CLEAR(self->partition);
    Py_CLEAR(self->aborted);
    Py_CLEAR(self->aborted_producers);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* --- methods and attributes -------------------------------------------------------------------------- */

static PyObject *records_close(Records *self, PyObject *Py_UNUSED(ignored))
{
    if (self->preparing || self->pinned) { /* the buffer is in use: it is released afterwards */
        self->closing = true;
        Py_RETURN_NONE;
    }
    if (records_enter(self) < 0)
        return NULL;
    close_now(self);
    records_leave(self);
    Py_RETURN_NONE;
}

/* Loads the next record, if there is one, and does not return it. A corrupt batch raises its error when it is read. */
static int open_next(Records *self)
{
    ParsedRecord parsed;
    int result = walk_next(self, &parsed);
    if (result > 0)
        walk_unread(self, &parsed);
    if (result < 0 && self->error != NULL) {
        PyErr_Clear();
        return 0;
    }
    return result < 0 ? -1 : 0;
}

static PyObject *records_open_next(Records *self, PyObject *Py_UNUSED(ignored))
{
    if (records_pause_while_preparing(self))
        return PyBool_FromLong(!self->paused);
    if (records_enter(self) < 0)
        return NULL;
    int opened = open_next(self);
    records_leave(self);
    return opened < 0 ? NULL : PyBool_FromLong(!self->paused);
}

static PyObject *records_prepare_next(Records *self, PyObject *Py_UNUSED(ignored))
{
    if (records_enter(self) < 0)
        return NULL;
    self->preparing = true;
    int opened = open_next(self);
    self->preparing = false;
    self->worked = 0; /* the event loop was not blocked */
    if (self->closing) {
        self->closing = false;
        close_now(self);
    }
    records_leave(self);
    if (opened < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *records_skip_corrupt(Records *self, PyObject *Py_UNUSED(ignored))
{
    if (records_enter(self) < 0)
        return NULL;
    int skipped = self->error != NULL ? walk_skip_corrupt(self) : 0;
    records_leave(self);
    return skipped < 0 ? NULL : PyLong_FromLongLong(self->next_offset);
}

static PyObject *records_evict(Records *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(body_evict(self));
}

static PyObject *records_repr(Records *self)
{
    return PyUnicode_FromFormat("<Records of %U[%S]: %zd bytes, next offset %lld%s>", self->topic,
                                self->partition, self->size, (long long)self->next_offset,
                                self->error ? ", corrupt" : self->view.obj ? "" : ", finished");
}

static PyObject *get_closed(Records *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->view.obj == NULL);
}

static PyGetSetDef records_properties[] = {
    {"closed", (getter)get_closed, NULL, "Whether the iteration has ended, or `close` was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef records_methods[] = {
    {"close", (PyCFunction)records_close, METH_NOARGS,
     "close()\n--\n\nEnd the iteration and release the buffer, unless both was done before.\n\n"
     "If a thread is in `prepare`, it still needs the buffer, and releases it when it is done."},
    {"skip_corrupt", (PyCFunction)records_skip_corrupt, METH_NOARGS,
     "skip_corrupt()\n--\n\nContinue after the corrupt data. Return the offset at which reading continues.\n\n"
     "If the end of the corrupt data is not known (`resume` of the `CorruptRecords` is None),\n"
     "raise the `CorruptRecords` again."},
    {"open_next", (PyCFunction)records_open_next, METH_NOARGS,
     "open_next()\n--\n\nLoad the next record, if there is one. Return False if reading paused before it."},
    {"prepare", (PyCFunction)records_prepare_next, METH_NOARGS,
     "prepare()\n--\n\nLoad the next record without pauses. Call this in a worker thread.\n\n"
     "If `close` is called meanwhile, the records are closed at the end of this call."},
    {"evict", (PyCFunction)records_evict, METH_NOARGS,
     "evict()\n--\n\nFree the decompressed body. Return False if there is none or if it is in use.\n\n"
     "When the next record is read, the body is decompressed again."},
    {"take_columns", (PyCFunction)records_take_columns, METH_VARARGS,
     "take_columns(flags, max_rows, max_bytes, scale, /)\n--\n\n"
     "Return the next records as buffers of Arrow arrays, or None if none can be read now.\n\n"
     "`asyncconsumer.records.arrow` uses this."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef records_members[] = {
    {"topic", T_OBJECT_EX, offsetof(Records, topic), READONLY, NULL},
    {"partition", T_OBJECT_EX, offsetof(Records, partition), READONLY, NULL},
    {"next_offset", T_LONGLONG, offsetof(Records, next_offset), READONLY,
     "The offset after the records returned so far, at which the next fetch must start."},
    {"incomplete", T_LONGLONG, offsetof(Records, incomplete), READONLY,
     "The size of the first record batch if the data ends within it, otherwise 0."},
    {"leader_epoch", T_INT, offsetof(Records, leader_epoch), READONLY,
     "The leader epoch of the last record batch that was read, or -1 if there was none."},
    {"bodies", T_OBJECT, offsetof(Records, bodies), READONLY,
     "The cache that charges decompressed bodies to a budget, or None."},
    {"cooperative", T_BOOL, offsetof(Records, cooperative), 0,
     "Whether the iteration ends, with `paused` set, whenever the event loop should run."},
    {"paused", T_UBYTE, offsetof(Records, paused), READONLY,
     "The reason why the iteration ended before its end; `NOT_PAUSED` if it did not."},
    {"worked", T_LONGLONG, offsetof(Records, worked), 0,
     "The number of bytes decompressed since this was last set to 0."},
    {"size", T_PYSSIZET, offsetof(Records, size), READONLY, "The size of the record set in bytes."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Records_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.Records",
    .tp_doc = PyDoc_STR("Records(data, *, topic, partition, offset=0, end=2**63-1, aborted=None, check_crc=True, "
                        "max_decompressed_bytes=67108864, max_batch=134217728, bodies=None)\n--\n\n"
                        "An iterator over the record set of one partition, as a fetch response carries it.\n\n"
                        "See asyncconsumer.records.record_set.Records, the same in Python."),
    .tp_basicsize = sizeof(Records),
    .tp_weaklistoffset = offsetof(Records, weakrefs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = records_new,
    .tp_dealloc = (destructor)records_dealloc,
    .tp_traverse = (traverseproc)records_traverse,
    .tp_clear = (inquiry)records_clear,
    .tp_repr = (reprfunc)records_repr,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)records_next,
    .tp_methods = records_methods,
    .tp_members = records_members,
    .tp_getset = records_properties,
};

int records_prepare(PyObject *module) { return PyModule_AddType(module, &Records_Type); }
