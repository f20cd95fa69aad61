/* Loop: the iterator of one `async for` statement, which reports how the loop was left.

   The interpreter keeps the iterator of a statement only on the stack of its frame. If such an iterator is
   deallocated while that frame executes POP_TOP, the statement was left by `break` or `return`. In all other cases
   an error or an unknown exit is reported. See asyncconsumer.records.loop, the same in Python. */

#include "native.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    PyObject *source;    /* an async iterator */
    PyObject *iteration; /* the observer, whose methods are called at the start and the end */
    PyObject *weakrefs;
    PyObject *task;      /* weak reference to the task of the last request, if other tasks may request items; or NULL */
    const void *frame;   /* the frame of the statement, or NULL; only compared, because it may be deallocated */
    bool begun, ready, is_generator;
} Loop;

static PyTypeObject Loop_Type;
static int get_anext = -1, pop_top = -1; /* opcodes */
static PyObject *current_task; /* the function of asyncio */

static bool refers_to(PyObject *reference, PyObject *object)
{
#if PY_VERSION_HEX < 0x030D0000
    return PyWeakref_GetObject(reference) == object;
#else
    PyObject *result = NULL;
    if (PyWeakref_GetRef(reference, &result) < 0)
        PyErr_Clear();
    Py_XDECREF(result);
    return result == object;
#endif
}

/* Returns the opcode that a frame executes, or -1. */
static int instruction_of(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *bytes = PyCode_GetCode(code);
    Py_DECREF(code);
    if (bytes == NULL) {
        PyErr_Clear();
        return -1;
    }
    int position = PyFrame_GetLasti(frame);
    int opcode = position < 0 || position >= PyBytes_GET_SIZE(bytes)
                     ? -1
                     : (unsigned char)PyBytes_AS_STRING(bytes)[position];
    Py_DECREF(bytes);
    return opcode;
}

static bool is_async_generator(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool result = (code->co_flags & CO_ASYNC_GENERATOR) != 0;
    Py_DECREF(code);
    return result;
}

static PyObject *loop_create(PyObject *source, PyObject *iteration)
{
    Loop *self = PyObject_GC_New(Loop, &Loop_Type);
    if (self == NULL)
        return NULL;
    self->source = Py_NewRef(source);
    self->iteration = Py_NewRef(iteration);
    self->weakrefs = self->task = NULL;
    self->frame = NULL;
    self->begun = self->ready = self->is_generator = false;
    PyObject_GC_Track(self);
    PyObject *reference = PyWeakref_NewRef((PyObject *)self, NULL);
    if (reference == NULL || PyObject_SetAttrString(iteration, "loop", reference) < 0)
        Py_CLEAR(self);
    Py_XDECREF(reference);
    return (PyObject *)self;
}

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"source", "iteration", NULL};
    PyObject *source, *iteration;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:Loop", names, &source, &iteration))
        return NULL;
    PyAsyncMethods *methods = Py_TYPE(source)->tp_as_async;
    if (methods == NULL || methods->am_anext == NULL) {
        PyErr_Format(PyExc_TypeError, "source must be an async iterator, not %.100s", Py_TYPE(source)->tp_name);
        return NULL;
    }
    return loop_create(source, iteration);
}

static int refuse_cleared(Loop *self)
{
    if (self->source != NULL)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the Loop was cleared as garbage");
    return -1;
}

/* A second loop over the same object gets an iterator of its own. */
static PyObject *loop_aiter(Loop *self)
{
    if (refuse_cleared(self) < 0)
        return NULL;
    PyObject *iteration = PyObject_CallMethod(self->iteration, "again", NULL);
    if (iteration == NULL)
        return NULL;
    PyObject *loop = loop_create(self->source, iteration);
    Py_DECREF(iteration);
    return loop;
}

/* Returns the current task, or NULL without an exception. */
static PyObject *running_task(void)
{
    PyObject *task = PyObject_CallNoArgs(current_task);
    if (task == NULL) {
        PyErr_Clear(); /* no event loop is running */
        return NULL;
    }
    if (task == Py_None)
        Py_CLEAR(task);
    return task;
}

/* Whether the current task also made the last request. Then the observer's `begin` need not be called. */
static bool is_same_task(const Loop *self)
{
    if (self->task == NULL)
        return false;
    PyObject *task = running_task();
    bool same = task != NULL && refers_to(self->task, task);
    Py_XDECREF(task);
    return same;
}

static int remember_task(Loop *self)
{
    PyObject *task = running_task();
    PyObject *reference = task == NULL ? NULL : PyWeakref_NewRef(task, NULL);
    bool failed = task != NULL && reference == NULL;
    Py_XDECREF(task);
    Py_XSETREF(self->task, reference);
    return failed ? -1 : 0;
}

static int loop_begin(Loop *self)
{
    if (!self->begun) {
        self->begun = true;
        PyFrameObject *frame = PyEval_GetFrame();
        if (frame != NULL && instruction_of(frame) == get_anext) {
            self->frame = frame;
            self->is_generator = is_async_generator(frame);
        }
    }
    PyObject *result = PyObject_CallMethod(self->iteration, "begin", NULL);
    if (result == NULL)
        return -1;
    Py_DECREF(result);
    self->ready = self->frame != NULL && !self->is_generator;
    return self->ready ? 0 : remember_task(self);
}

static PyObject *loop_anext(Loop *self)
{
    if (!self->ready && (refuse_cleared(self) < 0 || (!is_same_task(self) && loop_begin(self) < 0)))
        return NULL;
    return Py_TYPE(self->source)->tp_as_async->am_anext(self->source);
}

static PyObject *loop_begin_again(Loop *self, PyObject *ignored)
{
    self->ready = false;
    Py_CLEAR(self->task);
    Py_RETURN_NONE;
}

static const char *exit_of(Loop *self)
{
    if (self->frame == NULL)
        return "unknown";
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == self->frame && instruction_of(frame) == pop_top)
        return "break";
    return self->is_generator ? "unknown" : "error";
}

static int loop_traverse(Loop *self, visitproc visit, void *arg)
{
    Py_VISIT(self->source);
    Py_VISIT(self->iteration);
    Py_VISIT(self->task);
    return 0;
}

static int loop_clear(Loop *self)
{
    self->ready = false;
    Py_CLEAR(self->source);
    Py_CLEAR(self->iteration);
    Py_CLEAR(self->task);
    return 0;
}

/* Not in tp_dealloc: in garbage with cycles, the observer may be cleared by then. */
static void loop_finalize(Loop *self)
{
    if (!self->begun || self->iteration == NULL)
        return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *result = PyObject_CallMethod(self->iteration, "on_exit", "s", exit_of(self));
    if (result == NULL)
        PyErr_WriteUnraisable(self->iteration);
    Py_XDECREF(result);
    PyErr_Restore(type, error, traceback);
}

static void loop_dealloc(Loop *self)
{
    if (PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0)
        return; /* the observer has stored a new reference */
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    loop_clear(self);
    PyObject_GC_Del(self);
}

static PyMethodDef loop_methods[] = {
    {"begin_again", (PyCFunction)loop_begin_again, METH_NOARGS,
     PyDoc_STR("begin_again($self, /)\n--\n\nRequire a call of the observer's `begin` before the next item.\n\n"
               "The owner of the iterator calls this when another loop has read from it.")},
    {NULL, NULL, 0, NULL},
};

static PyAsyncMethods loop_as_async = {
    .am_aiter = (unaryfunc)loop_aiter,
    .am_anext = (unaryfunc)loop_anext,
};

static PyTypeObject Loop_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.Loop",
    .tp_doc = PyDoc_STR("Loop(source, iteration)\n--\n\n"
                        "The iterator of one ``async for`` statement, or of direct ``anext`` calls.\n\n"
                        "See asyncconsumer.records.loop.Loop, the same in Python."),
    .tp_basicsize = sizeof(Loop),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = loop_new,
    .tp_dealloc = (destructor)loop_dealloc,
    .tp_traverse = (traverseproc)loop_traverse,
    .tp_clear = (inquiry)loop_clear,
    .tp_finalize = (destructor)loop_finalize,
    .tp_weaklistoffset = offsetof(Loop, weakrefs),
    .tp_as_async = &loop_as_async,
    .tp_methods = loop_methods,
};

static int opcode_of(PyObject *names, const char *name)
{
    PyObject *number = PyMapping_GetItemString(names, name);
    if (number == NULL)
        return -1;
    int result = (int)PyLong_AsLong(number);
    Py_DECREF(number);
    return result;
}

static int find_current_task(void)
{
    PyObject *asyncio = PyImport_ImportModule("asyncio");
    if (asyncio == NULL)
        return -1;
    Py_XSETREF(current_task, PyObject_GetAttrString(asyncio, "current_task"));
    Py_DECREF(asyncio);
    return current_task == NULL ? -1 : 0;
}

int loop_prepare(PyObject *module)
{
    if (find_current_task() < 0)
        return -1;
    PyObject *opcodes = PyImport_ImportModule("opcode");
    if (opcodes == NULL)
        return -1;
    PyObject *names = PyObject_GetAttrString(opcodes, "opmap");
    Py_DECREF(opcodes);
    if (names == NULL)
        return -1;
    get_anext = opcode_of(names, "GET_ANEXT");
    pop_top = opcode_of(names, "POP_TOP");
    Py_DECREF(names);
    if (get_anext < 0 || pop_top < 0)
        return -1;
    return PyModule_AddType(module, &Loop_Type);
}
