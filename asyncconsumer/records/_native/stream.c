/* AsyncRecords: `async for record in ...` that enters the event loop once per record set.

   `__anext__` returns a Step. While records are in hand, awaiting it completes within `am_send`:
   no exception, no coroutine, no loop. When they run out it awaits `refill()`, passing through
   whatever that yields. A Step that nobody else holds is used again for the next record. */

#include "stream.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *stream_anext(AsyncRecords *self)
{
    Step *step = self->spare;
    self->spare = NULL; /* what is let go of below may run code that comes here again */
    self->in_flight = false;
    if (step == NULL || Py_REFCNT(step) > 1) {
        Py_XDECREF(step);
        step = step_new();
        if (step == NULL)
            return NULL;
    }
    else if (step->state != STEP_DONE) /* abandoned: nobody but us knows it any more */
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
    self->ended = true; /* whoever still reaches us must not call what is gone */
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
     "The Records in hand, also while they are read to the end and more is awaited; or None."},
    {"last_offset", T_LONGLONG, offsetof(AsyncRecords, last_offset), READONLY,
     "Offset of the record handed out last, which the user may still be busy with; -1 before."},
    {"recover", T_OBJECT, offsetof(AsyncRecords, recover), 0,
     "Called with an error of the records in hand; if it is true, refill() is asked in place of raising."},
    {"unreadable", T_OBJECT, offsetof(AsyncRecords, unreadable), 0,
     "Called with the error of an unreadable record or batch; returns None, or an awaitable to await before it is "
     "skipped."},
    {"remaining", T_LONGLONG, offsetof(AsyncRecords, remaining), 0,
     "Number of records that may still be returned; -1 means no limit. At 0, `refill` is called for each request."},
    {"in_flight", T_BOOL, offsetof(AsyncRecords, in_flight), READONLY,
     "Whether a record was handed out, and none asked for since."},
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
    pending_clear(&self->pending); /* a message of the old builder */
    Py_XSETREF(self->builder, value == Py_None ? NULL : (MessageBuilder *)Py_NewRef(value));
    return 0;
}

static PyObject *get_is_waiting(AsyncRecords *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->waiting != NULL);
}

static PyMethodDef stream_methods[] = {
    {"take", (PyCFunction)stream_take, METH_VARARGS,
     "take(items, most, /)\n--\n\nAppend up to `most` items that need no await to the list, and return their number."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_properties[] = {
    {"builder", (getter)get_builder, (setter)set_builder,
     "The MessageBuilder that makes an item of each record; None returns the records themselves.", NULL},
    {"is_waiting", (getter)get_is_waiting, NULL, "Whether a task waits for the next item.", NULL},
    {"deadline", (getter)get_deadline, (setter)set_deadline,
     "When the clock has passed it, refill() is asked before another record is handed out.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyAsyncMethods stream_as_async = {
    .am_aiter = PyObject_SelfIter,
    .am_anext = (unaryfunc)stream_anext,
};

static PyTypeObject AsyncRecords_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records.AsyncRecords",
    .tp_doc = PyDoc_STR("AsyncRecords(refill, clock=None)\n--\n\nIterate with `async for` over record sets.\n\n"
                        "See asyncconsumer.records._pure.AsyncRecords, the same in Python."),
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
