/* MessageBuilder: creates messages from records. See asyncconsumer.records.message, the same in Python. */

#include "builder.h"

#include "await.h"
#include "errors.h"
#include "message.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *awaited_message; /* the class AwaitedMessage */

static bool is_awaitable(PyObject *object)
{
    PyAsyncMethods *methods = Py_TYPE(object)->tp_as_async;
    return (methods != NULL && methods->am_await != NULL) || is_generator_coroutine(object);
}

/* Reports the error of an interceptor. The record is passed on as it was. */
static int report_interceptor(MessageBuilder *self, PyObject *record)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *error = error_fetch();
    PyObject *result = PyObject_CallFunctionObjArgs(self->intercept_failed, error, record, NULL);
    Py_DECREF(error);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Whether a record that an interceptor returned has the partition and offset of the original: 1, 0 or -1. */
static int is_same_place(PyObject *returned, PyObject *record)
{
    Record *a = (Record *)returned, *b = (Record *)record;
    int same = PyObject_RichCompareBool(a->topic, b->topic, Py_EQ);
    if (same == 1)
        same = PyObject_RichCompareBool(a->partition, b->partition, Py_EQ);
    return same == 1 ? PyObject_RichCompareBool(a->offset, b->offset, Py_EQ) : same;
}

static int check_intercepted(PyObject *returned, PyObject *record)
{
    if (returned == record)
        return 0;
    if (!Py_IS_TYPE(returned, &Record_Type)) {
        PyErr_Format(PyExc_TypeError, "on_consume() must return a record, not %.100s", Py_TYPE(returned)->tp_name);
        return -1;
    }
    int same = is_same_place(returned, record);
    if (same == 0)
        PyErr_SetString(PyExc_ValueError, "on_consume() must return a record of the same partition and offset");
    return same == 1 ? 0 : -1;
}

PyObject *builder_intercept(MessageBuilder *self, PyObject *record)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->interceptors); i++) {
        PyObject *returned = PyObject_CallOneArg(PyTuple_GET_ITEM(self->interceptors, i), record);
        if (returned != NULL && check_intercepted(returned, record) == 0) {
            Py_SETREF(record, returned);
            continue;
        }
        Py_XDECREF(returned);
        if (report_interceptor(self, record) < 0) {
            Py_DECREF(record);
            return NULL;
        }
    }
    return record;
}

/* Calls `fail`, which raises an error in place of the one that is set. */
static void translate_failure(MessageBuilder *self, Message *message, const char *part)
{
    PyObject *error = error_fetch(), *record = message_record(message);
    PyObject *result = record ? PyObject_CallFunction(self->fail, "OOs", error, record, part) : NULL;
    if (result != NULL) { /* `fail` raised nothing, so the first error is raised */
        Py_DECREF(result);
        error_raise(error);
        return;
    }
    Py_DECREF(error);
}

static inline PyObject *build_part(MessageBuilder *self, Message *message, PyObject *data, PyObject *function,
                                   bool takes_record, const char *part)
{
    if (function == NULL || data == Py_None)
        return Py_NewRef(data);
    PyObject *argument = takes_record ? message_record(message) : data;
    PyObject *deserialized = argument ? PyObject_CallOneArg(function, argument) : NULL;
    if (deserialized == NULL && self->fail != NULL && !takes_record)
        translate_failure(self, message, part);
    return deserialized;
}

/* Steals `key` and `value`. */
static PyObject *await_parts(MessageBuilder *self, PyObject *record, PyObject *key, PyObject *value)
{
    PyObject *awaitable = record == NULL
                              ? NULL
                              : PyObject_CallFunctionObjArgs(awaited_message, (PyObject *)self, record, key, value,
                                                             NULL);
    Py_DECREF(key);
    Py_DECREF(value);
    return awaitable;
}

static void discard_part(PyObject *part)
{
    if (PyCoro_CheckExact(part)) { /* otherwise Python would warn that it was never awaited */
        PyObject *error = error_fetch();
        ignore_result(PyObject_CallMethod(part, "close", NULL));
        error_raise(error);
    }
    Py_DECREF(part);
}

static enum Built build(MessageBuilder *self, Message *message, PyObject **item)
{
    PyObject *key = build_part(self, message, message->key_bytes, self->key, self->key_takes_record, "key");
    if (key == NULL)
        return BUILD_ERROR;
    PyObject *value = build_part(self, message, message->value_bytes, self->value, self->value_takes_record, "value");
    if (value == NULL) {
        discard_part(key);
        return BUILD_ERROR;
    }
    if ((self->value != NULL && is_awaitable(value)) || (self->key != NULL && is_awaitable(key))) {
        *item = await_parts(self, message_record(message), key, value);
        return *item == NULL ? BUILD_ERROR : BUILD_AWAITS;
    }
    message_complete(message, key, value, self->commit);
    *item = Py_NewRef(message);
    return BUILD_DONE;
}

/* Whether the builder returns records without change. */
static inline bool keeps_records(const MessageBuilder *self)
{
    return self->key == NULL && self->value == NULL && self->commit == NULL && self->message_type == &Message_Type;
}

enum Built builder_build(MessageBuilder *self, PyObject *record, PyObject **item)
{
    *item = NULL;
    if (keeps_records(self)) {
        *item = Py_NewRef(record);
        return BUILD_DONE;
    }
    Message *message = message_from_record(self->message_type, record);
    if (message == NULL)
        return BUILD_ERROR;
    enum Built built = build(self, message, item);
    Py_DECREF(message);
    return built;
}

enum Built builder_build_at(MessageBuilder *self, const Records *records, const ParsedRecord *parsed, PyObject **record,
                            PyObject **item)
{
    *record = *item = NULL;
    if (keeps_records(self)) {
        *item = record_create(records->topic, records->partition, parsed);
        return *item == NULL ? BUILD_ERROR : BUILD_DONE;
    }
    Message *message = message_from_parsed(self->message_type, records->topic, records->partition, parsed);
    if (message == NULL)
        return BUILD_ERROR;
    enum Built built = build(self, message, item);
    if (built != BUILD_DONE)
        *record = Py_XNewRef(message_record(message));
    Py_DECREF(message);
    return built;
}

static PyObject *new_optional(PyObject *object) { return object == Py_None ? NULL : Py_NewRef(object); }

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"key", "value", "key_takes_record", "value_takes_record", "commit", "fail",
                            "interceptors", "intercept_failed", "message_type", NULL};
    PyObject *key = Py_None, *value = Py_None, *commit = Py_None, *fail = Py_None, *interceptors = NULL;
    PyObject *intercept_failed = Py_None, *message_type = (PyObject *)&Message_Type;
    int key_takes_record = 0, value_takes_record = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO$ppOOO!OO!:MessageBuilder", names, &key, &value,
                                     &key_takes_record, &value_takes_record, &commit, &fail, &PyTuple_Type,
                                     &interceptors, &intercept_failed, &PyType_Type, &message_type))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)message_type, &Message_Type)) {
        PyErr_SetString(PyExc_TypeError, "message_type must be a subclass of Message");
        return NULL;
    }
    MessageBuilder *self = (MessageBuilder *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->key = new_optional(key);
    self->value = new_optional(value);
    self->key_takes_record = key_takes_record;
    self->value_takes_record = value_takes_record;
    self->commit = new_optional(commit);
    self->fail = new_optional(fail);
    self->interceptors = interceptors ? Py_NewRef(interceptors) : PyTuple_New(0);
    self->intercept_failed = Py_NewRef(intercept_failed);
    self->message_type = (PyTypeObject *)Py_NewRef(message_type);
    if (self->interceptors == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int builder_traverse(MessageBuilder *self, visitproc visit, void *arg)
{
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->commit);
    Py_VISIT(self->fail);
    Py_VISIT(self->interceptors);
    Py_VISIT(self->intercept_failed);
    Py_VISIT(self->message_type);
    return 0;
}

/* builder_intercept() needs `interceptors`. A cycle through this tuple has another object that can be cleared. */
static int builder_clear(MessageBuilder *self)
{
    Py_CLEAR(self->key);
    Py_CLEAR(self->value);
    Py_CLEAR(self->commit);
    Py_CLEAR(self->fail);
    Py_XSETREF(self->intercept_failed, Py_NewRef(Py_None));
    return 0;
}

static void builder_dealloc(MessageBuilder *self)
{
    PyObject_GC_UnTrack(self);
    builder_clear(self);
    Py_CLEAR(self->interceptors);
    Py_CLEAR(self->intercept_failed);
    Py_CLEAR(self->message_type);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *builder_intercept_method(MessageBuilder *self, PyObject *record)
{
    if (!Py_IS_TYPE(record, &Record_Type)) {
        PyErr_Format(PyExc_TypeError, "record must be a Record, not %.100s", Py_TYPE(record)->tp_name);
        return NULL;
    }
    return builder_intercept(self, Py_NewRef(record));
}

static PyObject *builder_build_method(MessageBuilder *self, PyObject *record)
{
    PyObject *item = NULL;
    if (!Py_IS_TYPE(record, &Record_Type))
        PyErr_Format(PyExc_TypeError, "record must be a Record, not %.100s", Py_TYPE(record)->tp_name);
    else
        builder_build(self, record, &item);
    return item;
}

static PyMethodDef builder_methods[] = {
    {"intercept", (PyCFunction)builder_intercept_method, METH_O,
     "intercept(record, /)\n--\n\n"
     "Return the record that the interceptors made of `record`, one after the other.\n\n"
     "If an interceptor fails, report its error, and pass the record on as it was before."},
    {"build", (PyCFunction)builder_build_method, METH_O,
     "build(record, /)\n--\n\nReturn the message of a record, or an awaitable that returns it."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef builder_members[] = {
    {"commit", T_OBJECT, offsetof(MessageBuilder, commit), READONLY, "The function that commits a message, or None."},
    {"message_type", T_OBJECT, offsetof(MessageBuilder, message_type), READONLY, "The class of messages."},
    {"fail", T_OBJECT, offsetof(MessageBuilder, fail), READONLY,
     "The function that raises the error for a failed deserializer, or None."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject MessageBuilder_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.MessageBuilder",
    .tp_doc = PyDoc_STR("MessageBuilder(key=None, value=None, *, key_takes_record=False, value_takes_record=False, "
                        "commit=None, fail=None, interceptors=(), intercept_failed=None, message_type=Message)\n--\n\n"
                        "A builder of messages from records.\n\n"
                        "See asyncconsumer.records.message.MessageBuilder, the same in Python."),
    .tp_basicsize = sizeof(MessageBuilder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = builder_new,
    .tp_dealloc = (destructor)builder_dealloc,
    .tp_traverse = (traverseproc)builder_traverse,
    .tp_clear = (inquiry)builder_clear,
    .tp_members = builder_members,
    .tp_methods = builder_methods,
};

int builder_prepare(PyObject *module)
{
    PyObject *helper = PyImport_ImportModule("asyncconsumer.records.message");
    awaited_message = helper ? PyObject_GetAttrString(helper, "AwaitedMessage") : NULL;
    Py_XDECREF(helper);
    return awaited_message == NULL ? -1 : PyModule_AddType(module, &MessageBuilder_Type);
}
