/* AsyncRecords: an async iterator that enters the event loop mostly once per record set.

   `__anext__` returns a Step. While there are records in memory, awaiting it completes within `am_send`, without an
   exception, a coroutine or the event loop. Otherwise it awaits `refill()`. A Step without other references is
   reused for the next record. */

#include "stream.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *stream_anext(AsyncRecords *self)
{
    Step *step = self->spare;
    self->spare = NULL; /* dropping references may run code that calls this function */
    self->in_flight = false;
    if (step == NULL || Py_REFCNT(step) > 1) {
        Py_XDECREF(step);
        step = step_new();
        if (step == NULL)
            return NULL;
    }
    else if (step->state != STEP_DONE) /* the task that requested it has dropped it */
        step_finish(step);
    step->state = STEP_NEW;
    step->wait = WAIT_NONE;
    step->running = false;
    step->stream = (AsyncRecords *)Py_NewRef(self);
    Py_XSETREF(self->spare, (Step *)Py_NewRef(step));
    return (PyObject *)step;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"refill", "clock", NULL};
    PyObject *refill, *clock = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:AsyncRecords", names, &refill, &clock))
        return NULL;
    if (!PyCallable_Check(refill)) {
        PyErr_SetString(PyExc_TypeError, "refill must be a coroutine function");
        return NULL;
    }
    AsyncRecords *self = (AsyncRecords *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->refill = Py_NewRef(refill);
    self->last_offset = self->remaining = -1;
    self->deadline = self->wall_deadline = Py_HUGE_VAL;
    self->clock = clock == Py_None ? NULL : Py_NewRef(clock);
    return (PyObject *)self;
}

static int stream_traverse(AsyncRecords *self, visitproc visit, void *arg)
{
    Py_VISIT(self->refill);
    Py_VISIT(self->clock);
    Py_VISIT(self->recover);
    Py_VISIT(self->current);
    Py_VISIT(self->spare);
    Py_VISIT(self->builder);
    Py_VISIT(self->unreadable);
    Py_VISIT(self->pending.record);
    Py_VISIT(self->pending.value);
    return 0;
}

static int stream_clear(AsyncRecords *self)
{
    self->ended = true; /* an object that still refers to this one must not use the cleared fields */
    Py_CLEAR(self->refill);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->recover);
    Py_CLEAR(self->current);
    Py_CLEAR(self->spare);
    Py_CLEAR(self->builder);
    Py_CLEAR(self->unreadable);
    pending_clear(&self->pending);
    return 0;
}

static void stream_dealloc(AsyncRecords *self)
{
    PyObject_GC_UnTrack(self);
    stream_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef stream_members[] = {
    {"current", T_OBJECT, offsetof(AsyncRecords, current), READONLY,
     "The current `Records`, also during `refill`; None before the first and at the end."},
    {"last_offset", T_LONGLONG, offsetof(AsyncRecords, last_offset), READONLY,
     "Offset of the last record returned, which may still be in processing; or -1."},
    {"recover", T_OBJECT, offsetof(AsyncRecords, recover), 0,
     "Called with an error of the current records; if it returns true, `refill` is called."},
    {"unreadable", T_OBJECT, offsetof(AsyncRecords, unreadable), 0,
     "Called with the error of an unreadable record or batch.\n\n"
     "It returns None to raise the error, or an awaitable to await before the record is skipped."},
    {"remaining", T_LONGLONG, offsetof(AsyncRecords, remaining), 0,
     "Number of records that may still be returned; -1 means no limit.\n\n"
     "At 0, `refill` is called for each request."},
    {"in_flight", T_BOOL, offsetof(AsyncRecords, in_flight), READONLY,
     "Whether a record was returned and the next one has not been asked for."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *get_deadline(AsyncRecords *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(self->deadline);
}

static int set_deadline(AsyncRecords *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "deadline cannot be deleted");
        return -1;
    }
    double deadline = PyFloat_AsDouble(value);
    if (deadline == -1.0 && PyErr_Occurred())
        return -1;
    self->deadline = deadline;
    self->wall_deadline = wall_seconds() + (deadline - monotonic_seconds());
    return 0;
}

static PyObject *get_builder(AsyncRecords *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->builder ? (PyObject *)self->builder : Py_None);
}

static int set_builder(AsyncRecords *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL || (value != Py_None && !Py_IS_TYPE(value, &MessageBuilder_Type))) {
        PyErr_SetString(PyExc_TypeError, "builder must be a MessageBuilder or None");
        return -1;
    }
    pending_clear(&self->pending); /* the pending message is of the former builder */
    Py_XSETREF(self->builder, value == Py_None ? NULL : (MessageBuilder *)Py_NewRef(value));
    return 0;
}

static PyObject *get_is_waiting(AsyncRecords *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->waiting != NULL);
}

static PyMethodDef stream_methods[] = {
    {"take", (PyCFunction)stream_take, METH_VARARGS,
     "take(items, limit, /)\n--\n\nAppend up to `limit` items to `items`. Return the number of appended items.\n\n"
     "Stop before a record that cannot be decoded or whose message must be awaited. The iteration\n"
     "continues with that record."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_properties[] = {
    {"builder", (getter)get_builder, (setter)set_builder,
     "The `MessageBuilder` that makes an item of each record. Without one the items are the records.", NULL},
    {"is_waiting", (getter)get_is_waiting, NULL, "Whether a task waits for the next item.", NULL},
    {"deadline", (getter)get_deadline, (setter)set_deadline,
     "The loop time after which `refill` must be called before another record is returned.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyAsyncMethods stream_as_async = {
    .am_aiter = PyObject_SelfIter,
    .am_anext = (unaryfunc)stream_anext,
};

static PyTypeObject AsyncRecords_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.AsyncRecords",
    .tp_doc = PyDoc_STR("AsyncRecords(refill, clock=None)\n--\n\n"
                        "An async iterator over the records of successive record sets.\n\n"
                        "See asyncconsumer.records.async_records.AsyncRecords, the same in Python."),
    .tp_basicsize = sizeof(AsyncRecords),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = stream_new,
    .tp_dealloc = (destructor)stream_dealloc,
    .tp_traverse = (traverseproc)stream_traverse,
    .tp_clear = (inquiry)stream_clear,
    .tp_as_async = &stream_as_async,
    .tp_members = stream_members,
    .tp_getset = stream_properties,
    .tp_methods = stream_methods,
};

int stream_prepare(PyObject *module)
{
    return step_prepare() < 0 ? -1 : PyModule_AddType(module, &AsyncRecords_Type);
}
