/* Record: small, immutable and without garbage collection. It cannot be part of a cycle: the constructor ensures
   that its fields are exactly str, int, bytes and tuples of these. */

#include "native.h"
#include "parts.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *no_headers; /* the empty tuple */

/* Deallocated records, with the parts that a later record may reuse. */
static Record *spare[MAX_SPARE];
static int spare_count;

static inline Record *new_record(void)
{
    if (spare_count > 0)
        return (Record *)PyObject_Init((PyObject *)spare[--spare_count], &Record_Type);
    Record *self = PyObject_New(Record, &Record_Type);
    if (self != NULL)
        self->offset = self->timestamp = self->key = self->value = NULL;
    return self;
}

/* parse_record() has checked the bounds, and that keys are UTF-8. */
PyObject *headers_create(const ParsedRecord *parsed)
{
    if (parsed->header_count == 0)
        return Py_NewRef(no_headers);
    PyObject *headers = PyTuple_New(parsed->header_count);
    if (headers == NULL)
        return NULL;
    Reader r = {parsed->headers, parsed->headers_end};
    for (int32_t i = 0; i < parsed->header_count; i++) {
        int64_t length = 0;
        read_varint(&r, &length);
        PyObject *key = PyUnicode_DecodeUTF8((const char *)r.position, (Py_ssize_t)length, NULL);
        r.position += length;
        read_varint(&r, &length);
        PyObject *value = bytes_from(NULL, length < 0 ? NULL : r.position, (int32_t)length);
        if (length > 0)
            r.position += length;
        PyObject *pair = key && value ? PyTuple_Pack(2, key, value) : NULL;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (pair == NULL) {
            Py_DECREF(headers);
            return NULL;
        }
        PyObject_GC_UnTrack(pair);
        PyTuple_SET_ITEM(headers, i, pair);
    }
    PyObject_GC_UnTrack(headers);
    return headers;
}

PyObject *record_create(PyObject *topic, PyObject *partition, const ParsedRecord *parsed)
{
    Record *self = new_record();
    if (self == NULL)
        return NULL;
    self->topic = Py_NewRef(topic);
    self->partition = Py_NewRef(partition);
    self->offset = int_from(self->offset, parsed->offset);
    self->timestamp = int_from(self->timestamp, parsed->timestamp);
    self->timestamp_type = parsed->timestamp_type;
    self->key = bytes_from(self->key, parsed->key, parsed->key_length);
    self->value = bytes_from(self->value, parsed->value, parsed->value_length);
    self->headers = headers_create(parsed);
    if (self->offset == NULL || self->timestamp == NULL || self->key == NULL || self->value == NULL
        || self->headers == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyObject *record_create_from_parts(PyObject *topic, PyObject *partition, PyObject *offset, PyObject *timestamp,
                                   signed char timestamp_type, PyObject *key, PyObject *value, PyObject *headers)
{
    Record *self = new_record();
    if (self == NULL)
        return NULL;
    self->topic = Py_NewRef(topic);
    self->partition = Py_NewRef(partition);
    Py_XSETREF(self->offset, Py_NewRef(offset));
    Py_XSETREF(self->timestamp, Py_NewRef(timestamp));
    self->timestamp_type = timestamp_type;
    Py_XSETREF(self->key, Py_NewRef(key));
    Py_XSETREF(self->value, Py_NewRef(value));
    self->headers = Py_NewRef(headers);
    return (PyObject *)self;
}

static void record_dealloc(Record *self)
{
    Py_XDECREF(self->topic);
    Py_XDECREF(self->partition);
    Py_XDECREF(self->headers);
    if (spare_count < MAX_SPARE) {
        self->key = part_to_reuse(self->key, spare_count);
        self->value = part_to_reuse(self->value, spare_count);
        spare[spare_count++] = self;
        return;
    }
    Py_XDECREF(self->offset);
    Py_XDECREF(self->timestamp);
    Py_XDECREF(self->key);
    Py_XDECREF(self->value);
    PyObject_Free(self);
}

/* --- creation in Python ------------------------------------------------------------------------- */

static PyObject *exact_bytes(PyObject *object, const char *name)
{
    if (object == Py_None || PyBytes_CheckExact(object))
        return Py_NewRef(object);
    PyErr_Format(PyExc_TypeError, "%s must be bytes or None, not %.100s", name, Py_TYPE(object)->tp_name);
    return NULL;
}

static PyObject *exact_header(PyObject *object)
{
    PyObject *pair = PySequence_Tuple(object), *value = NULL, *header = NULL;
    if (pair == NULL)
        return NULL;
    if (PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0)))
        PyErr_SetString(PyExc_TypeError, "a header must be a pair of str and bytes or None");
    else if ((value = exact_bytes(PyTuple_GET_ITEM(pair, 1), "a header's value")) != NULL)
        header = PyTuple_Pack(2, PyTuple_GET_ITEM(pair, 0), value);
    Py_XDECREF(value);
    Py_DECREF(pair);
    return header;
}

static PyObject *exact_headers(PyObject *object)
{
    if (object == NULL)
        return Py_NewRef(no_headers);
    PyObject *items = PySequence_Tuple(object);
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *headers = PyTuple_New(count);
    for (Py_ssize_t i = 0; headers != NULL && i < count; i++) {
        PyObject *pair = exact_header(PyTuple_GET_ITEM(items, i));
        if (pair == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, i, pair);
    }
    Py_DECREF(items);
    return headers;
}

static PyObject *record_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"topic", "partition", "offset", "timestamp", "timestamp_type",
                            "key", "value", "headers", NULL};
    PyObject *topic, *key = Py_None, *value = Py_None, *headers = NULL;
    int partition, timestamp_type = 0;
    long long offset, timestamp = -1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UiL|LiOOO:Record", names, &topic, &partition,
                                     &offset, &timestamp, &timestamp_type, &key, &value, &headers))
        return NULL;
    if (timestamp_type < -1 || timestamp_type > 1) {
        PyErr_SetString(PyExc_ValueError, "timestamp_type must be 0 (create), 1 (log append) or -1 (none)");
        return NULL;
    }
    Record *self = new_record();
    if (self == NULL)
        return NULL;
    self->topic = PyUnicode_FromObject(topic); /* an instance of a subclass could be part of a cycle */
    self->partition = PyLong_FromLong(partition);
    self->offset = int_from(self->offset, offset);
    self->timestamp = int_from(self->timestamp, timestamp);
    self->timestamp_type = (signed char)timestamp_type;
    Py_XSETREF(self->key, exact_bytes(key, "key"));
    Py_XSETREF(self->value, self->key ? exact_bytes(value, "value") : NULL);
    self->headers = self->value ? exact_headers(headers) : NULL;
    if (self->topic == NULL || self->partition == NULL || self->offset == NULL || self->timestamp == NULL
        || self->headers == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* --- comparison, hash, repr and pickle ----------------------------------------------------------- */

static PyObject *record_compare(PyObject *left, PyObject *right, int operator)
{
    if ((operator != Py_EQ && operator != Py_NE) || !Py_IS_TYPE(right, &Record_Type)
        || !Py_IS_TYPE(left, &Record_Type))
        Py_RETURN_NOTIMPLEMENTED;
    Record *a = (Record *)left, *b = (Record *)right;
    int same = a->timestamp_type == b->timestamp_type;
    PyObject *pairs[][2] = {{a->offset, b->offset}, {a->timestamp, b->timestamp}, {a->topic, b->topic},
                            {a->partition, b->partition}, {a->key, b->key}, {a->value, b->value},
                            {a->headers, b->headers}};
    for (int i = 0; same == 1 && i < 7; i++)
        same = PyObject_RichCompareBool(pairs[i][0], pairs[i][1], Py_EQ);
    if (same < 0)
        return NULL;
    return PyBool_FromLong(same == (operator == Py_EQ));
}

static Py_hash_t record_hash(Record *self)
{
    PyObject *identity = Py_BuildValue("(OOO)", self->topic, self->partition, self->offset);
    if (identity == NULL)
        return -1;
    Py_hash_t hash = PyObject_Hash(identity);
    Py_DECREF(identity);
    return hash;
}

static PyObject *fields_of(Record *self)
{
    return Py_BuildValue("(OOOOiOOO)", self->topic, self->partition, self->offset, self->timestamp,
                         (int)self->timestamp_type, self->key, self->value, self->headers);
}

/* These calls are rare, and both decoders share their Python code. */
static PyObject *helper_function(const char *name)
{
    PyObject *helper = PyImport_ImportModule("asyncconsumer.records.record");
    PyObject *function = helper ? PyObject_GetAttrString(helper, name) : NULL;
    Py_XDECREF(helper);
    return function;
}

static PyObject *record_repr(Record *self)
{
    PyObject *show = helper_function("show"), *fields = show ? fields_of(self) : NULL;
    PyObject *text = fields ? PyObject_CallObject(show, fields) : NULL;
    Py_XDECREF(fields);
    Py_XDECREF(show);
    return text;
}

static PyObject *record_reduce(Record *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *restore = helper_function("restore"), *fields = restore ? fields_of(self) : NULL;
    PyObject *reduced = fields ? PyTuple_Pack(2, restore, fields) : NULL;
    Py_XDECREF(fields);
    Py_XDECREF(restore);
    return reduced;
}

/* Raises the error that says how to get a Message, which can be committed. */
static PyObject *record_commit(Record *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *refuse = helper_function("refuse_commit");
    PyObject *result = refuse ? PyObject_CallFunction(refuse, "OOO", self->topic, self->partition,
                                                      self->offset) : NULL;
    Py_XDECREF(refuse);
    return result;
}

static PyObject *get_record(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self);
}

static PyMethodDef record_methods[] = {
    {"__reduce__", (PyCFunction)record_reduce, METH_NOARGS, NULL},
    {"commit", (PyCFunction)record_commit, METH_NOARGS,
     "Raise `ConfigError`, because only a `Message` can be committed."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef record_getters[] = {
    {"record", get_record, NULL, "The record itself. A `Message` has the same attribute.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef record_members[] = {
    {"topic", T_OBJECT_EX, offsetof(Record, topic), READONLY, "The topic name."},
    {"partition", T_OBJECT_EX, offsetof(Record, partition), READONLY, "The partition number."},
    {"offset", T_OBJECT_EX, offsetof(Record, offset), READONLY, "The offset in the partition."},
    {"timestamp", T_OBJECT_EX, offsetof(Record, timestamp), READONLY, "Milliseconds since 1970, or -1."},
    {"timestamp_type", T_BYTE, offsetof(Record, timestamp_type), READONLY,
     "0 if the producer set the timestamp, 1 if the broker set it on append, -1 in the old format without timestamps."},
    {"key", T_OBJECT_EX, offsetof(Record, key), READONLY, "The key as bytes, or None."},
    {"value", T_OBJECT_EX, offsetof(Record, value), READONLY, "The value as bytes, or None for a tombstone."},
    {"headers", T_OBJECT_EX, offsetof(Record, headers), READONLY,
     "The headers, as pairs of a name and a value of bytes or None."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Record_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.Record",
    .tp_doc = PyDoc_STR(
        "Record(topic, partition, offset, timestamp=-1, timestamp_type=0, key=None, value=None, headers=())\n"
        "--\n\nA record of one partition. It owns its bytes and refers to no buffer."),
    .tp_basicsize = sizeof(Record),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = record_new,
    .tp_dealloc = (destructor)record_dealloc,
    .tp_repr = (reprfunc)record_repr,
    .tp_hash = (hashfunc)record_hash,
    .tp_richcompare = record_compare,
    .tp_methods = record_methods,
    .tp_members = record_members,
    .tp_getset = record_getters,
};

int record_prepare(PyObject *module)
{
    no_headers = PyTuple_New(0);
    PyObject *match_args = Py_BuildValue("(ssssssss)", "topic", "partition", "offset", "timestamp",
                                         "timestamp_type", "key", "value", "headers");
    if (no_headers == NULL || match_args == NULL || PyType_Ready(&Record_Type) < 0
        || PyDict_SetItemString(Record_Type.tp_dict, "__match_args__", match_args) < 0)
        return -1;
    Py_DECREF(match_args);
    PyType_Modified(&Record_Type);
    return PyModule_AddType(module, &Record_Type);
}
