/* Message: a record with a deserialized key and value. See asyncconsumer.records.message, the same in Python.

   Messages and their parts are reused, as records are. That saves allocations, and the garbage collections that
   these would trigger. */

#include "message.h"

#include "parts.h"

#include <stddef.h>
#include <structmember.h>

PyTypeObject Message_Type;

/* Deallocated messages, with the parts that a later message may reuse. */
static Message *spare[MAX_SPARE];
static int spare_count;

/* Whether instances of a type have only the fields of a Message. */
static inline bool has_only_message_fields(const PyTypeObject *type)
{
    return type->tp_basicsize == sizeof(Message) && type->tp_dictoffset == 0 && type->tp_weaklistoffset == 0;
}

static inline Message *new_message(PyTypeObject *type)
{
    if (!has_only_message_fields(type))
        return (Message *)type->tp_alloc(type, 0);
    Message *self;
    if (spare_count > 0) {
        self = spare[--spare_count];
        PyObject_Init((PyObject *)self, type);
    }
    else {
        self = PyObject_GC_New(Message, type);
        if (self == NULL)
            return NULL;
        self->offset = self->timestamp = self->key_bytes = self->value_bytes = NULL;
    }
    self->headers = self->key = self->value = self->record = self->committing = NULL;
    return self;
}

Message *message_from_parsed(PyTypeObject *type, PyObject *topic, PyObject *partition, const ParsedRecord *parsed)
{
    Message *self = new_message(type);
    if (self == NULL)
        return NULL;
    self->topic = Py_NewRef(topic);
    self->partition = Py_NewRef(partition);
    self->offset = int_from(self->offset, parsed->offset);
    self->timestamp = int_from(self->timestamp, parsed->timestamp);
    self->timestamp_type = parsed->timestamp_type;
    self->key_bytes = bytes_from(self->key_bytes, parsed->key, parsed->key_length);
    self->value_bytes = bytes_from(self->value_bytes, parsed->value, parsed->value_length);
    self->headers = headers_create(parsed);
    if (self->offset == NULL || self->timestamp == NULL || self->key_bytes == NULL || self->value_bytes == NULL
        || self->headers == NULL)
        Py_CLEAR(self);
    return self;
}

Message *message_from_record(PyTypeObject *type, PyObject *record)
{
    Record *source = (Record *)record;
    Message *self = new_message(type);
    if (self == NULL)
        return NULL;
    self->topic = Py_NewRef(source->topic);
    self->partition = Py_NewRef(source->partition);
    Py_XSETREF(self->offset, Py_NewRef(source->offset));
    Py_XSETREF(self->timestamp, Py_NewRef(source->timestamp));
    self->timestamp_type = source->timestamp_type;
    Py_XSETREF(self->key_bytes, Py_NewRef(source->key));
    Py_XSETREF(self->value_bytes, Py_NewRef(source->value));
    self->headers = Py_NewRef(source->headers);
    self->record = Py_NewRef(record);
    return self;
}

void message_complete(Message *self, PyObject *key, PyObject *value, PyObject *commit)
{
    self->key = key;
    self->value = value;
    self->committing = Py_XNewRef(commit);
    /* Bytes and numbers cannot be part of a cycle, so the garbage collector can skip such messages. Further
       attributes may refer to the message, but `tp_alloc` already tracks messages that have some. */
    if (has_only_message_fields(Py_TYPE(self)) && (commit != NULL || PyObject_IS_GC(key) || PyObject_IS_GC(value)))
        PyObject_GC_Track(self);
}

PyObject *message_record(Message *self)
{
    if (self->record == NULL)
        self->record = record_create_from_parts(self->topic, self->partition, self->offset, self->timestamp,
                                                self->timestamp_type, self->key_bytes, self->value_bytes,
                                                self->headers);
    return self->record;
}

static int message_traverse(Message *self, visitproc visit, void *arg)
{
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->committing);
    return 0;
}

/* The other fields cannot be part of a cycle. */
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
    Py_XDECREF(self->topic);
    Py_XDECREF(self->partition);
    Py_XDECREF(self->headers);
    Py_XDECREF(self->key);
    Py_XDECREF(self->value);
    Py_XDECREF(self->record);
    Py_XDECREF(self->committing);
    if (has_only_message_fields(Py_TYPE(self)) && spare_count < MAX_SPARE) {
        self->key_bytes = part_to_reuse(self->key_bytes, spare_count);
        self->value_bytes = part_to_reuse(self->value_bytes, spare_count);
        spare[spare_count++] = self;
    }
    else {
        Py_XDECREF(self->offset);
        Py_XDECREF(self->timestamp);
        Py_XDECREF(self->key_bytes);
        Py_XDECREF(self->value_bytes);
        Py_TYPE(self)->tp_free((PyObject *)self);
    }
    Py_TRASHCAN_END
}

static PyObject *message_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"record", "key", "value", "commit", NULL};
    PyObject *record, *key = Py_None, *value = Py_None, *commit = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|OOO:Message", names, &Record_Type, &record, &key, &value,
                                     &commit))
        return NULL;
    Message *self = message_from_record(type, record);
    if (self != NULL)
        message_complete(self, Py_NewRef(key), Py_NewRef(value), commit == Py_None ? NULL : commit);
    return (PyObject *)self;
}

/* --- rare calls, which share the Python code of the pure decoder ------------------------------------- */

static PyObject *call_helper(const char *name, PyObject *argument)
{
    PyObject *helper = PyImport_ImportModule("asyncconsumer.records.message");
    PyObject *function = helper ? PyObject_GetAttrString(helper, name) : NULL;
    PyObject *result = function ? PyObject_CallOneArg(function, argument) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(helper);
    return result;
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
    PyObject *record = message_record(a), *other = record == NULL ? NULL : message_record(b);
    int same = other == NULL ? -1 : PyObject_RichCompareBool(record, other, Py_EQ);
    if (same == 1)
        same = PyObject_RichCompareBool(a->key, b->key, Py_EQ);
    if (same == 1)
        same = PyObject_RichCompareBool(a->value, b->value, Py_EQ);
    return same < 0 ? NULL : PyBool_FromLong(same == (operator == Py_EQ));
}

static Py_hash_t message_hash(Message *self)
{
    PyObject *record = message_record(self);
    return record == NULL ? -1 : PyObject_Hash(record);
}

static PyObject *get_record(Message *self, void *Py_UNUSED(closure)) { return Py_XNewRef(message_record(self)); }

static PyMethodDef message_methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {"__reduce__", message_reduce, METH_NOARGS, NULL},
    {"commit", message_commit, METH_NOARGS,
     "commit()\n--\n\nCommit this message and all earlier ones of its partition.\n\n"
     "This needs ``commit_policy=\"manual\"``."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef message_properties[] = {
    {"record", (getter)get_record, NULL, "The record.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef message_members[] = {
    {"topic", T_OBJECT_EX, offsetof(Message, topic), READONLY, "The topic of the record."},
    {"partition", T_OBJECT_EX, offsetof(Message, partition), READONLY, "The partition number of the record."},
    {"offset", T_OBJECT_EX, offsetof(Message, offset), READONLY, "The offset of the record."},
    {"timestamp", T_OBJECT_EX, offsetof(Message, timestamp), READONLY, "Milliseconds since 1970, or -1."},
    {"key", T_OBJECT_EX, offsetof(Message, key), READONLY, "The deserialized key, or None."},
    {"value", T_OBJECT_EX, offsetof(Message, value), READONLY, "The deserialized value, or None."},
    {"headers", T_OBJECT_EX, offsetof(Message, headers), READONLY, "The headers of the record."},
    {"timestamp_type", T_BYTE, offsetof(Message, timestamp_type), READONLY, "The timestamp type of the record."},
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
    PyObject *match_args = Py_BuildValue("(ssssss)", "topic", "partition", "offset", "timestamp", "key", "value");
    if (match_args == NULL || PyType_Ready(&Message_Type) < 0
        || PyDict_SetItemString(Message_Type.tp_dict, "__match_args__", match_args) < 0)
        return -1;
    Py_DECREF(match_args);
    PyType_Modified(&Message_Type);
    return PyModule_AddType(module, &Message_Type);
}
