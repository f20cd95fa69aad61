/* Message: a record with a deserialized key and value. See asyncconsumer.records.message, the same in Python.

   A loop drops one message for each that it gets, so messages are reused. That saves the allocation, and the
   garbage collections that allocations would trigger. */

#include "message.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *topic, *partition, *offset, *timestamp; /* copied from the record, because Python reads slots fastest */
    PyObject *key, *value, *record;
    PyObject *committing; /* commits this message; or NULL */
} Message;

PyTypeObject Message_Type;

enum { MOST_SPARE = 512 };
static Message *spare[MOST_SPARE];
static int spare_count;

PyObject *message_from(PyTypeObject *type, PyObject *record, PyObject *key, PyObject *value, PyObject *commit)
{
    Record *source = (Record *)record;
    Message *self;
    if (type != &Message_Type)
        self = (Message *)type->tp_alloc(type, 0);
    else if (spare_count > 0) {
        self = spare[--spare_count];
        PyObject_Init((PyObject *)self, &Message_Type);
    }
    else
        self = PyObject_GC_New(Message, &Message_Type);
    if (self == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        return NULL;
    }
    self->topic = Py_NewRef(source->topic);
    self->partition = Py_NewRef(source->partition);
    self->offset = Py_NewRef(source->offset);
    self->timestamp = Py_NewRef(source->timestamp);
    self->key = key;
    self->value = value;
    self->record = Py_NewRef(record);
    self->committing = Py_XNewRef(commit);
    /* Bytes and numbers are in no cycle, so the collector need not visit lists of such messages. Subclasses may
       have attributes, which may refer to the message. `tp_alloc` has tracked those. */
    if (type == &Message_Type && (commit != NULL || PyObject_IS_GC(key) || PyObject_IS_GC(value)))
        PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int message_traverse(Message *self, visitproc visit, void *arg)
{
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->committing);
    return 0;
}

/* The other fields belong to no cycle. */
static int message_clear(Message *self)
{
    Py_XSETREF(self->key, Py_NewRef(Py_None));
    Py_XSETREF(self->value, Py_NewRef(Py_None));
    Py_CLEAR(self->committing);
    return 0;
}

static void message_dealloc(Message *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, message_dealloc)
    Py_DECREF(self->topic);
    Py_DECREF(self->partition);
    Py_DECREF(self->offset);
    Py_DECREF(self->timestamp);
    Py_DECREF(self->key);
    Py_DECREF(self->value);
    Py_DECREF(self->record);
    Py_XDECREF(self->committing);
    if (!Py_IS_TYPE(self, &Message_Type))
        Py_TYPE(self)->tp_free((PyObject *)self);
    else if (spare_count < MOST_SPARE)
        spare[spare_count++] = self;
    else
        PyObject_GC_Del(self);
    Py_TRASHCAN_END
}

static PyObject *message_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"record", "key", "value", "commit", NULL};
    PyObject *record, *key = Py_None, *value = Py_None, *commit = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|OOO:Message", names, &Record_Type, &record, &key, &value,
                                     &commit))
        return NULL;
    return message_from(type, record, Py_NewRef(key), Py_NewRef(value), commit == Py_None ? NULL : commit);
}

/* --- rare calls, which share the Python code of the pure decoder ------------------------------------- */

static PyObject *call_helper(const char *name, PyObject *argument)
{
    PyObject *helper = PyImport_ImportModule("asyncconsumer.records.message");
    PyObject *function = helper ? PyObject_GetAttrString(helper, name) : NULL;
    PyObject *answer = function ? PyObject_CallOneArg(function, argument) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(helper);
    return answer;
}

static PyObject *message_repr(PyObject *self) { return call_helper("show_message", self); }

static PyObject *message_commit(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return call_helper("commit_message", self);
}

static PyObject *message_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return call_helper("reduce_message", self);
}

static PyObject *message_compare(PyObject *left, PyObject *right, int operator)
{
    if ((operator != Py_EQ && operator != Py_NE) || !Py_IS_TYPE(right, &Message_Type)
        || !Py_IS_TYPE(left, &Message_Type))
        Py_RETURN_NOTIMPLEMENTED;
    Message *a = (Message *)left, *b = (Message *)right;
    int same = PyObject_RichCompareBool(a->record, b->record, Py_EQ);
    if (same == 1)
        same = PyObject_RichCompareBool(a->key, b->key, Py_EQ);
    if (same == 1)
        same = PyObject_RichCompareBool(a->value, b->value, Py_EQ);
    return same < 0 ? NULL : PyBool_FromLong(same == (operator == Py_EQ));
}

static Py_hash_t message_hash(Message *self) { return PyObject_Hash(self->record); }

static PyObject *message_headers(Message *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(((Record *)self->record)->headers);
}

static PyObject *message_timestamp_type(Message *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Record *)self->record)->timestamp_type);
}

static PyMethodDef message_methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {"__reduce__", message_reduce, METH_NOARGS, NULL},
    {"commit", message_commit, METH_NOARGS,
     "commit()\n--\n\nCommit this message and all before it of its partition. Needs commit_policy=\"manual\"."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef message_properties[] = {
    {"headers", (getter)message_headers, NULL, "The headers of the record.", NULL},
    {"timestamp_type", (getter)message_timestamp_type, NULL, "The timestamp type of the record.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef message_members[] = {
    {"topic", T_OBJECT_EX, offsetof(Message, topic), READONLY, "The topic of the record."},
    {"partition", T_OBJECT_EX, offsetof(Message, partition), READONLY, "The partition number of the record."},
    {"offset", T_OBJECT_EX, offsetof(Message, offset), READONLY, "The offset of the record."},
    {"timestamp", T_OBJECT_EX, offsetof(Message, timestamp), READONLY, "Milliseconds since 1970, or -1."},
    {"key", T_OBJECT_EX, offsetof(Message, key), READONLY, "The deserialized key, or None."},
    {"value", T_OBJECT_EX, offsetof(Message, value), READONLY, "The deserialized value, or None."},
    {"record", T_OBJECT_EX, offsetof(Message, record), READONLY, "The record."},
    {"_committing", T_OBJECT, offsetof(Message, committing), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Message_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.Message",
    .tp_doc = PyDoc_STR("Message(record, key=None, value=None, commit=None)\n--\n\n"
                        "A record with a deserialized key and value. All other fields are those of the record."),
    .tp_basicsize = sizeof(Message),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .tp_new = message_new,
    .tp_dealloc = (destructor)message_dealloc,
    .tp_traverse = (traverseproc)message_traverse,
    .tp_clear = (inquiry)message_clear,
    .tp_repr = message_repr,
    .tp_hash = (hashfunc)message_hash,
    .tp_richcompare = message_compare,
    .tp_methods = message_methods,
    .tp_members = message_members,
    .tp_getset = message_properties,
};

int message_prepare(PyObject *module)
{
    PyObject *order = Py_BuildValue("(ssssss)", "topic", "partition", "offset", "timestamp", "key", "value");
    if (order == NULL || PyType_Ready(&Message_Type) < 0
        || PyDict_SetItemString(Message_Type.tp_dict, "__match_args__", order) < 0)
        return -1;
    Py_DECREF(order);
    PyType_Modified(&Message_Type);
    return PyModule_AddType(module, &Message_Type);
}
