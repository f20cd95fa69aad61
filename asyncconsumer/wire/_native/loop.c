/* Loop: what one `async for` iterates with, which knows how that loop was left.

   The loop holds the only reference. It lets go of it when it is left: with `break` or `return` no
   error is under way then; with an error, also with the cancellation of its task, it still is. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *source; /* an async iterator */
    PyObject *failed; /* called when the loop was left by an error */
} Loop;

static PyTypeObject Loop_Type;

static PyObject *loop_of(PyObject *source, PyObject *failed)
{
    Loop *self = PyObject_GC_New(Loop, &Loop_Type);
    if (self == NULL)
        return NULL;
    self->source = Py_NewRef(source);
    self->failed = Py_NewRef(failed);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"source", "failed", NULL};
    PyObject *source, *failed;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:Loop", names, &source, &failed))
        return NULL;
    PyAsyncMethods *methods = Py_TYPE(source)->tp_as_async;
    if (methods == NULL || methods->am_anext == NULL) {
        PyErr_Format(PyExc_TypeError, "source must be an async iterator, not %.100s", Py_TYPE(source)->tp_name);
        return NULL;
    }
    return loop_of(source, failed);
}

/* Whoever keeps it and loops over it twice has two loops. */
static PyObject *loop_aiter(Loop *self) { return loop_of(self->source, self->failed); }

static PyObject *loop_anext(Loop *self)
{
    if (self->source == NULL) { /* cleared, as part of garbage */
        PyErr_SetString(PyExc_RuntimeError, "the loop is over");
        return NULL;
    }
    return Py_TYPE(self->source)->tp_as_async->am_anext(self->source);
}

static int loop_traverse(Loop *self, visitproc visit, void *arg)
{
    Py_VISIT(self->source);
    Py_VISIT(self->failed);
    return 0;
}

static int loop_clear(Loop *self)
{
    Py_CLEAR(self->source);
    Py_CLEAR(self->failed);
    return 0;
}

static void loop_dealloc(Loop *self)
{
    PyObject_GC_UnTrack(self);
    if (PyErr_Occurred() && self->failed != NULL) {
        PyObject *type, *error, *where;
        PyErr_Fetch(&type, &error, &where);
        PyObject *answer = PyObject_CallNoArgs(self->failed);
        if (answer == NULL)
            PyErr_WriteUnraisable(self->failed);
        Py_XDECREF(answer);
        PyErr_Restore(type, error, where);
    }
    loop_clear(self);
    PyObject_GC_Del(self);
}

static PyAsyncMethods loop_as_async = {
    .am_aiter = (unaryfunc)loop_aiter,
    .am_anext = (unaryfunc)loop_anext,
};

static PyTypeObject Loop_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.wire._records.Loop",
    .tp_doc = PyDoc_STR("Loop(source, failed)\n--\n\nAn async iterator that tells if its loop was left by an error.\n\n"
                        "See asyncconsumer.wire.records.Loop, which cannot tell."),
    .tp_basicsize = sizeof(Loop),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = loop_new,
    .tp_dealloc = (destructor)loop_dealloc,
    .tp_traverse = (traverseproc)loop_traverse,
    .tp_clear = (inquiry)loop_clear,
    .tp_as_async = &loop_as_async,
};

int loop_prepare(PyObject *module) { return PyModule_AddType(module, &Loop_Type); }
