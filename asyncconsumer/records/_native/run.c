/* BlockRun: the calls of a function with the records of a block, one after the other.

   It is an awaitable. Coroutines that return at once are driven here, without the event loop and without Python
   frames. See asyncconsumer.records.block_run, the same in Python. */

#include "await.h"
#include "block.h"
#include "clock.h"
#include "errors.h"

#include <stddef.h>
#include <structmember.h>

enum RunState { RUN_NEW, RUN_WAITING, RUN_ENDED };

typedef struct {
    PyObject_HEAD
    RecordBlock *block;
    PyObject *call;
    PyObject *postpone;      /* called for a record whose key is in `busy`; it moves the index of the block */
    PyObject *on_result;     /* called with a result that is not None: returns whether it moved the index past the
                                record */
    PyObject *cancelling;    /* called after each call: returns whether the run ends */
    PyObject *busy;          /* a dict */
    PyObject *clock;         /* a function, or NULL for the system's clock */
    PyObject *record;        /* the record of the last call, or NULL */
    PyObject *inner;         /* the iterator of its awaitable, or NULL */
    Py_ssize_t record_index; /* index of `record` */
    Py_ssize_t limit;        /* number of calls that may still be made */
    Py_ssize_t calls;        /* number of calls that were begun */
    double seconds;          /* duration after which no call begins */
    double began, last_began, ended;
    enum RunState state;
    bool taken;              /* other code moved the index of the block during the last call */
    bool running;
} BlockRun;

static PyTypeObject BlockRun_Type;

static void run_end(BlockRun *self)
{
    self->state = RUN_ENDED;
    Py_CLEAR(self->inner);
}

/* Sets the time, which also advances while the machine is suspended. -1 with an exception. */
static int now(const BlockRun *self, double *seconds)
{
    if (self->clock == NULL) {
#ifdef CLOCK_BOOTTIME
        *seconds = seconds_of(CLOCK_BOOTTIME);
#else
        *seconds = seconds_of(CLOCK_MONOTONIC);
#endif
        return 0;
    }
    PyObject *time = PyObject_CallNoArgs(self->clock);
    if (time == NULL)
        return -1;
    *seconds = PyFloat_AsDouble(time);
    Py_DECREF(time);
    return *seconds == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* Converts the result of a call, which is stolen, to a bool. -1 with an exception. */
static int to_bool(PyObject *result)
{
    int is_true = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return is_true;
}

/* --- one call ----------------------------------------------------------------------------------------- */

/* Postpones records whose keys are busy. Returns 1 if the next record can be processed, 0 if there is none, and -1
   with an exception. */
static int find_record(BlockRun *self)
{
    PyObject *next;
    while ((next = block_next(self->block)) != NULL && self->limit > 0) {
        if (PyDict_GET_SIZE(self->busy) == 0)
            return 1;
        if (!Py_IS_TYPE(next, &Record_Type)) {
            PyErr_Format(PyExc_TypeError, "a block must contain Record objects, not %.100s", Py_TYPE(next)->tp_name);
            return -1;
        }
        int is_busy = PyDict_Contains(self->busy, ((Record *)next)->key);
        if (is_busy <= 0)
            return is_busy < 0 ? -1 : 1;
        Py_ssize_t before = self->block->index;
        PyObject *result = PyObject_CallNoArgs(self->postpone);
        if (result == NULL)
            return -1;
        Py_DECREF(result);
        self->limit--;
        if (self->block->index <= before) {
            PyErr_SetString(PyExc_RuntimeError, "postpone() did not pass over the record");
            return -1;
        }
    }
    return 0;
}

static int begin_call(BlockRun *self)
{
    PyObject *record = Py_NewRef(block_next(self->block));
    Py_XSETREF(self->record, record);
    self->record_index = self->block->index;
    self->limit--;
    self->calls++;
    self->last_began = self->ended;
    PyObject *awaitable = PyObject_CallOneArg(self->call, record);
    self->inner = awaitable == NULL ? NULL : await_iterator(awaitable);
    return self->inner == NULL ? -1 : 0;
}

/* Ends a call with its result, which is stolen. Returns 1 if the run continues, 0 if it ends, and -1 with an
   exception. */
static int end_call(BlockRun *self, PyObject *result)
{
    Py_CLEAR(self->inner);
    int is_passed = result == Py_None ? 0 : to_bool(PyObject_CallOneArg(self->on_result, result));
    Py_DECREF(result);
    if (is_passed < 0)
        return -1;
    self->taken = !is_passed && self->block->index != self->record_index;
    if (now(self, &self->ended) < 0)
        return -1;
    if (self->taken)
        return 0;
    if (!is_passed)
        self->block->index++;
    if (self->ended >= self->began + self->seconds)
        return 0;
    int cancelled = to_bool(PyObject_CallNoArgs(self->cancelling));
    return cancelled < 0 ? -1 : !cancelled;
}

/* --- the run ------------------------------------------------------------------------------------------ */

static PySendResult finish_with_error(BlockRun *self)
{
    PyObject *error = error_fetch(); /* clearing references may run code that changes the exception */
    run_end(self);
    if (now(self, &self->ended) < 0)
        PyErr_Clear();
    error_raise(error);
    return PYGEN_ERROR;
}

static PySendResult finish(BlockRun *self, PyObject **result)
{
    run_end(self);
    *result = Py_NewRef(Py_None);
    return PYGEN_RETURN;
}

/* Makes calls until one has to wait. Sends `value` to the current one, if there is one. */
static PySendResult advance(BlockRun *self, PyObject *value, PyObject **result)
{
    for (;; value = Py_None) {
        PyObject *awaited;
        if (self->inner == NULL) {
            int has_record = find_record(self);
            if (has_record == 0)
                return finish(self, result);
            if (has_record < 0 || begin_call(self) < 0)
                return finish_with_error(self);
        }
        switch (PyIter_Send(self->inner, value, &awaited)) {
        case PYGEN_NEXT:
            self->state = RUN_WAITING;
            *result = awaited;
            return PYGEN_NEXT;
        case PYGEN_ERROR:
            return finish_with_error(self);
        case PYGEN_RETURN:
            break;
        }
        int has_more = end_call(self, awaited);
        if (has_more < 0)
            return finish_with_error(self);
        if (has_more == 0)
            return finish(self, result);
    }
}

static int refuse(const BlockRun *self)
{
    if (self->state == RUN_ENDED)
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse an awaited BlockRun");
    else if (self->running)
        PyErr_SetString(PyExc_RuntimeError, "the BlockRun is already awaited");
    else
        return 0;
    return -1;
}

static PySendResult run_send(BlockRun *self, PyObject *value, PyObject **result)
{
    *result = NULL;
    if (refuse(self) < 0)
        return PYGEN_ERROR;
    Py_INCREF(self); /* code that runs meanwhile may drop the last other reference */
    self->running = true;
    PySendResult outcome;
    if (self->state == RUN_NEW && now(self, &self->began) < 0)
        outcome = finish_with_error(self);
    else {
        if (self->state == RUN_NEW)
            self->last_began = self->ended = self->began;
        outcome = advance(self, value, result);
    }
    self->running = false;
    Py_DECREF(self);
    return outcome;
}

/* --- the same as methods ------------------------------------------------------------------------------- */

static PyObject *run_send_method(BlockRun *self, PyObject *value)
{
    PyObject *result;
    PySendResult outcome = run_send(self, value, &result);
    return method_result(outcome, result);
}

static PyObject *run_next(BlockRun *self) { return run_send_method(self, Py_None); }

/* Ends the run with the exception that the caller throws. */
static PyObject *finish_with_thrown(BlockRun *self, PyObject *args)
{
    raise_thrown(args);
    finish_with_error(self);
    return NULL;
}

static PyObject *throw_into(BlockRun *self, PyObject *args)
{
    PyObject *method = PyObject_GetAttrString(self->inner, "throw"), *result = NULL;
    if (method == NULL) {
        PyErr_Clear();
        return finish_with_thrown(self, args);
    }
    PyObject *awaited = PyObject_CallObject(method, args);
    Py_DECREF(method);
    if (awaited != NULL)
        return awaited; /* it awaits another object now */
    awaited = stop_iteration_value();
    if (awaited == NULL)
        return method_result(finish_with_error(self), NULL);
    int has_more = end_call(self, awaited);
    PySendResult outcome = has_more < 0    ? finish_with_error(self)
                           : has_more == 0 ? finish(self, &result)
                                       : advance(self, Py_None, &result);
    return method_result(outcome, result);
}

static PyObject *run_throw(BlockRun *self, PyObject *args)
{
    if (refuse(self) < 0)
        return NULL;
    if (self->inner == NULL)
        return finish_with_thrown(self, args);
    Py_INCREF(self);
    self->running = true;
    PyObject *result = throw_into(self, args);
    self->running = false;
    Py_DECREF(self);
    return result;
}

static PyObject *run_close(BlockRun *self, PyObject *Py_UNUSED(ignored))
{
    if (self->state != RUN_ENDED && refuse(self) < 0)
        return NULL;
    PyObject *inner = self->inner ? Py_NewRef(self->inner) : NULL, *closed;
    if (inner != NULL && PyObject_HasAttrString(inner, "close"))
        closed = PyObject_CallMethod(inner, "close", NULL);
    else
        closed = Py_NewRef(Py_None);
    Py_XDECREF(inner);
    finish_with_error(self);
    return closed;
}

/* --- the object --------------------------------------------------------------------------------------- */

static PyObject *run_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"block", "call", "limit", "seconds", "busy", "postpone", "on_result", "cancelling",
                            "clock", NULL};
    PyObject *block, *call, *busy = NULL, *postpone = NULL, *on_result = NULL, *cancelling = NULL, *clock = Py_None;
    Py_ssize_t limit;
    double seconds;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!Ond|$O!OOOO:BlockRun", names, &RecordBlock_Type, &block, &call,
                                     &limit, &seconds, &PyDict_Type, &busy, &postpone, &on_result, &cancelling,
                                     &clock))
        return NULL;
    if (busy == NULL || postpone == NULL || on_result == NULL || cancelling == NULL) {
        PyErr_SetString(PyExc_TypeError, "BlockRun() needs busy, postpone, on_result and cancelling");
        return NULL;
    }
    BlockRun *self = (BlockRun *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->block = (RecordBlock *)Py_NewRef(block);
    self->call = Py_NewRef(call);
    self->busy = Py_NewRef(busy);
    self->postpone = Py_NewRef(postpone);
    self->on_result = Py_NewRef(on_result);
    self->cancelling = Py_NewRef(cancelling);
    self->clock = clock == Py_None ? NULL : Py_NewRef(clock);
    self->limit = limit;
    self->seconds = seconds;
    return (PyObject *)self;
}

static int run_traverse(BlockRun *self, visitproc visit, void *arg)
{
    Py_VISIT(self->block);
    Py_VISIT(self->call);
    Py_VISIT(self->busy);
    Py_VISIT(self->postpone);
    Py_VISIT(self->on_result);
    Py_VISIT(self->cancelling);
    Py_VISIT(self->clock);
    Py_VISIT(self->inner);
    return 0;
}

static int run_clear(BlockRun *self)
{
    self->state = RUN_ENDED; /* an object that still refers to this one must not use the cleared fields */
    Py_CLEAR(self->block);
    Py_CLEAR(self->call);
    Py_CLEAR(self->busy);
    Py_CLEAR(self->postpone);
    Py_CLEAR(self->on_result);
    Py_CLEAR(self->cancelling);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->inner);
    return 0;
}

static void run_dealloc(BlockRun *self)
{
    PyObject_GC_UnTrack(self);
    run_clear(self);
    Py_CLEAR(self->record);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *get_seconds_before_last(BlockRun *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(self->last_began - self->began);
}

static PyObject *get_seconds_of_last(BlockRun *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(self->ended - self->last_began);
}

static PyGetSetDef run_properties[] = {
    {"seconds_before_last", (getter)get_seconds_before_last, NULL,
     "The seconds that all calls but the last have taken.", NULL},
    {"seconds_of_last", (getter)get_seconds_of_last, NULL, "The seconds that the last call has taken.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef run_members[] = {
    {"calls", T_PYSSIZET, offsetof(BlockRun, calls), READONLY, "Number of calls that were begun."},
    {"record", T_OBJECT, offsetof(BlockRun, record), READONLY, "The record of the last call, or None."},
    {"taken", T_BOOL, offsetof(BlockRun, taken), READONLY,
     "Whether other code moved the index of the block during the last call, which ends the run."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef run_methods[] = {
    {"send", (PyCFunction)run_send_method, METH_O, NULL},
    {"throw", (PyCFunction)run_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)run_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyAsyncMethods run_as_async = {
    .am_await = PyObject_SelfIter,
    .am_send = (sendfunc)run_send,
};

static PyTypeObject BlockRun_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.BlockRun",
    .tp_doc = PyDoc_STR("BlockRun(block, call, limit, seconds, *, busy, postpone, on_result, cancelling, "
                        "clock=None)\n--\n\n"
                        "An awaitable that calls a function with records of a block, one after the other (a run).\n\n"
                        "See asyncconsumer.records.block_run.BlockRun, the same in Python."),
    .tp_basicsize = sizeof(BlockRun),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = run_new,
    .tp_dealloc = (destructor)run_dealloc,
    .tp_traverse = (traverseproc)run_traverse,
    .tp_clear = (inquiry)run_clear,
    .tp_as_async = &run_as_async,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)run_next,
    .tp_methods = run_methods,
    .tp_members = run_members,
    .tp_getset = run_properties,
};

int run_prepare(PyObject *module) { return PyModule_AddType(module, &BlockRun_Type); }
