/* PartReader and PartsCall: the call of a function with parts of a record. See asyncconsumer.records.parts_call, the
   same in Python. */

#include "native.h"

#include "errors.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *part;            /* the name: "key", "value" or "record" */
    size_t field_offset;       /* offset of the key or value in a Record; 0 for the record itself */
    PyObject *function, *fail; /* or NULL */
    vectorcallfunc vectorcall;
} PartReader;

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *readers; /* a tuple */
    vectorcallfunc vectorcall;
} PartsCall;

static PyTypeObject PartReader_Type;

/* --- reading ------------------------------------------------------------------------------------------ */

static PyObject *part_of(const PartReader *self, PyObject *record)
{
    if (self->field_offset == 0)
        return Py_NewRef(record);
    if (Py_IS_TYPE(record, &Record_Type))
        return Py_NewRef(*(PyObject **)((char *)record + self->field_offset));
    return PyObject_GetAttr(record, self->part);
}

/* Calls `fail`, which raises an error in place of the one that is set. */
static void raise_failure(const PartReader *self, PyObject *record)
{
    PyObject *error = error_fetch();
    PyObject *result = PyObject_CallFunctionObjArgs(self->fail, error, record, self->part, NULL);
    if (result != NULL) { /* `fail` raised nothing, so the first error is raised */
        Py_DECREF(result);
        error_raise(error);
        return;
    }
    Py_DECREF(error);
}

static PyObject *read_part(PartReader *self, PyObject *record)
{
    PyObject *data = part_of(self, record);
    if (data == NULL || data == Py_None || self->function == NULL)
        return data;
    PyObject *deserialized = PyObject_CallOneArg(self->function, data);
    Py_DECREF(data);
    if (deserialized == NULL && self->fail != NULL)
        raise_failure(self, record);
    return deserialized;
}

/* Returns the only argument of a call as a borrowed reference. NULL with an exception. */
static PyObject *only_argument(const char *name, PyObject *const *args, size_t flags, PyObject *keywords)
{
    if (PyVectorcall_NARGS(flags) == 1 && (keywords == NULL || PyTuple_GET_SIZE(keywords) == 0))
        return args[0];
    PyErr_Format(PyExc_TypeError, "%s takes exactly one argument, a record", name);
    return NULL;
}

static PyObject *reader_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *keywords)
{
    PyObject *record = only_argument("PartReader", args, flags, keywords);
    return record == NULL ? NULL : read_part((PartReader *)self, record);
}

static int set_part(PartReader *self, PyObject *part)
{
    if (PyUnicode_CompareWithASCIIString(part, "key") == 0)
        self->field_offset = offsetof(Record, key);
    else if (PyUnicode_CompareWithASCIIString(part, "value") == 0)
        self->field_offset = offsetof(Record, value);
    else if (PyUnicode_CompareWithASCIIString(part, "record") != 0) {
        PyErr_Format(PyExc_ValueError, "part must be 'key', 'value' or 'record', not %R", part);
        return -1;
    }
    self->part = Py_NewRef(part);
    PyUnicode_InternInPlace(&self->part);
    return 0;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"part", "function", "fail", NULL};
    PyObject *part, *function = Py_None, *fail = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|OO:PartReader", names, &part, &function, &fail))
        return NULL;
    PartReader *self = (PartReader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = reader_call;
    self->function = function == Py_None ? NULL : Py_NewRef(function);
    self->fail = fail == Py_None ? NULL : Py_NewRef(fail);
    if (set_part(self, part) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int reader_traverse(PartReader *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->fail);
    return 0;
}

static int reader_clear(PartReader *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->fail);
    return 0;
}

static void reader_dealloc(PartReader *self)
{
    PyObject_GC_UnTrack(self);
    reader_clear(self);
    Py_CLEAR(self->part);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject PartReader_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.PartReader",
    .tp_doc = PyDoc_STR("PartReader(part, function=None, fail=None)\n--\n\n"
                        "A function that returns the key or the value of a record, or the record itself.\n\n"
                        "See asyncconsumer.records.parts_call.PartReader, the same in Python."),
    .tp_basicsize = sizeof(PartReader),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = reader_new,
    .tp_dealloc = (destructor)reader_dealloc,
    .tp_traverse = (traverseproc)reader_traverse,
    .tp_clear = (inquiry)reader_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(PartReader, vectorcall),
};

/* --- calling ------------------------------------------------------------------------------------------ */

static inline PyObject *read_with(PyObject *reader, PyObject *record)
{
    return Py_IS_TYPE(reader, &PartReader_Type) ? read_part((PartReader *)reader, record)
                                                : PyObject_CallOneArg(reader, record);
}

static PyObject *call_with_one(PartsCall *self, PyObject *record)
{
    PyObject *args[2] = {NULL, read_with(PyTuple_GET_ITEM(self->readers, 0), record)}; /* the callee may use args[0] */
    if (args[1] == NULL)
        return NULL;
    PyObject *result = PyObject_Vectorcall(self->function, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(args[1]);
    return result;
}

static PyObject *call_with_all(PartsCall *self, PyObject *record)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->readers);
    PyObject *args = PyTuple_New(count), *result = NULL;
    for (Py_ssize_t i = 0; args != NULL && i < count; i++) {
        PyObject *part = read_with(PyTuple_GET_ITEM(self->readers, i), record);
        if (part == NULL)
            Py_CLEAR(args);
        else
            PyTuple_SET_ITEM(args, i, part);
    }
    if (args != NULL)
        result = PyObject_Call(self->function, args, NULL);
    Py_XDECREF(args);
    return result;
}

static PyObject *call_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords)
{
    PartsCall *self = (PartsCall *)callable;
    PyObject *record = only_argument("PartsCall", args, flags, keywords);
    if (record == NULL)
        return NULL;
    if (self->function == NULL || self->readers == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the call was cleared as garbage");
        return NULL;
    }
    Py_INCREF(self); /* the function may drop the last other reference */
    PyObject *result = PyTuple_GET_SIZE(self->readers) == 1 ? call_with_one(self, record) : call_with_all(self, record);
    Py_DECREF(self);
    return result;
}

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"function", "readers", NULL};
    PyObject *function, *readers;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:PartsCall", names, &function, &readers))
        return NULL;
    PartsCall *self = (PartsCall *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = call_call;
    self->function = Py_NewRef(function);
    self->readers = PySequence_Tuple(readers);
    if (self->readers == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int call_traverse(PartsCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->readers);
    return 0;
}

static int call_clear(PartsCall *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->readers);
    return 0;
}

static void call_dealloc(PartsCall *self)
{
    PyObject_GC_UnTrack(self);
    call_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject PartsCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.PartsCall",
    .tp_doc = PyDoc_STR("PartsCall(function, readers)\n--\n\n"
                        "A function of a record that passes the results of `readers` for the record to `function`.\n\n"
                        "See asyncconsumer.records.parts_call.PartsCall, the same in Python."),
    .tp_basicsize = sizeof(PartsCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = call_new,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_clear = (inquiry)call_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(PartsCall, vectorcall),
};

int call_prepare(PyObject *module)
{
    return PyModule_AddType(module, &PartReader_Type) < 0 ? -1 : PyModule_AddType(module, &PartsCall_Type);
}
