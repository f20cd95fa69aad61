/* One step of AsyncRecords: what `__anext__` returns and `await` drives. */

#include "stream.h"

enum { RECORDS_BETWEEN_PAUSES = 8192 };

static PyTypeObject Step_Type;

void step_finish(Step *self)
{
    AsyncRecords *stream = self->stream;
    self->state = DONE;
    self->stream = NULL;
    if (stream != NULL && stream->waiting == self)
        stream->waiting = NULL;
    Py_CLEAR(self->inner);
    Py_XDECREF(stream);
}

static PySendResult failed(Step *self)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback); /* what is let go of may run code */
    step_finish(self);
    PyErr_Restore(type, error, traceback);
    return PYGEN_ERROR;
}

/* What `await` would iterate over. Steals `awaitable`. */
static PyObject *iterator_of(PyObject *awaitable)
{
    PyAsyncMethods *methods = Py_TYPE(awaitable)->tp_as_async;
    if (PyCoro_CheckExact(awaitable))
        return awaitable;
    PyObject *iterator = NULL;
    if (methods != NULL && methods->am_await != NULL)
        iterator = methods->am_await(awaitable);
    else
        PyErr_Format(PyExc_TypeError, "refill() must return an awaitable, not %.100s", Py_TYPE(awaitable)->tp_name);
    Py_DECREF(awaitable);
    return iterator;
}

/* Waits for what refill() gives; or for the records in hand, of which a large body is decompressed elsewhere. */
static int ask_for_more(Step *self, bool in_hand)
{
    AsyncRecords *stream = self->stream;
    self->state = WAITING;
    stream->waiting = self;
    stream->handed_out = 0;
    Records *current = stream->current;
    PyObject *awaitable = in_hand ? PyObject_CallMethod(current->bodies, "prepare", "O", (PyObject *)current)
                                  : PyObject_CallNoArgs(stream->refill);
    if (awaitable == NULL)
        return -1;
    self->inner = iterator_of(awaitable);
    return self->inner ? 0 : -1;
}

/* What was waited for gave `answer`, which is stolen. */
static int take_more(Step *self, PyObject *answer)
{
    AsyncRecords *stream = self->stream;
    Py_CLEAR(self->inner);
    stream->waiting = NULL;
    if (answer == Py_None) {
        stream->ended = true;
        Py_CLEAR(stream->current);
        Py_DECREF(answer);
        return 0;
    }
    if (!Py_IS_TYPE(answer, &Records_Type)) {
        PyErr_Format(PyExc_TypeError, "refill() must give Records or None, not %.100s", Py_TYPE(answer)->tp_name);
        Py_DECREF(answer);
        return -1;
    }
    ((Records *)answer)->cooperative = true;
    Py_XSETREF(stream->current, (Records *)answer);
    return 0;
}

/* A record in hand, or NULL: then with an exception, or without one and more is needed. */
static inline PyObject *in_hand(AsyncRecords *stream)
{
    Records *current = stream->current;
    if (current == NULL)
        return NULL;
    Py_INCREF(current);
    PyObject *record = records_next(current);
    if (record != NULL) {
        stream->handed_out++;
        stream->last_offset = current->given;
        stream->in_hand = true;
    }
    Py_DECREF(current);
    return record;
}

/* As `await asyncio.sleep(0)` does. The next send() goes on as if the step began again. */
static PySendResult yield_to_loop(Step *self, PyObject **result)
{
    AsyncRecords *stream = self->stream;
    self->state = PAUSED;
    stream->waiting = self;
    stream->handed_out = 0;
    if (stream->current != NULL) {
        stream->current->worked = 0;
        stream->current->paused = NOT_PAUSED;
    }
    *result = Py_NewRef(Py_None);
    return PYGEN_NEXT;
}

/* Whether refill() is to be asked in place of raising the error that is set; if not, an error is set. */
static bool recovered(AsyncRecords *stream)
{
    PyObject *type, *error, *traceback;
    if (stream->recover == NULL || stream->recover == Py_None)
        return false;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *recover = Py_NewRef(stream->recover);
    PyObject *answer = PyObject_CallOneArg(recover, error);
    Py_DECREF(recover);
    int again = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (again == 0) {
        PyErr_Restore(type, error, traceback);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return again > 0;
}

/* Whether refill() must be asked, though there may be records: 1, 0, or -1 with an exception. The monotonic clock
   stands still while the machine is suspended; the wall clock does not. */
static int is_late(const AsyncRecords *stream)
{
    if (stream->clock == NULL)
        return monotonic_seconds() >= stream->deadline || wall_seconds() >= stream->wall_deadline;
    PyObject *told = PyObject_CallNoArgs(stream->clock);
    if (told == NULL)
        return -1;
    double now = PyFloat_AsDouble(told);
    Py_DECREF(told);
    return now == -1.0 && PyErr_Occurred() ? -1 : now >= stream->deadline;
}

static PySendResult step_advance(Step *self, PyObject **result)
{
    int late = self->stream->deadline < Py_HUGE_VAL && !self->stream->ended ? is_late(self->stream) : 0;
    if (late < 0)
        return failed(self);
    for (;;) {
        if (self->stream->ended) {
            PyErr_SetNone(PyExc_StopAsyncIteration);
            return failed(self);
        }
        if (!late && self->stream->handed_out >= RECORDS_BETWEEN_PAUSES)
            return yield_to_loop(self, result);
        PyObject *answer = late ? NULL : in_hand(self->stream);
        bool read = !late && self->stream->current != NULL;
        late = 0; /* refill() is asked once: what it gives may be handed out */
        if (answer != NULL) {
            step_finish(self);
            *result = answer;
            return PYGEN_RETURN;
        }
        if (PyErr_Occurred() && !recovered(self->stream))
            return failed(self);
        if (self->stream->ended)
            continue;
        enum Pause pause = read && self->stream->current != NULL ? self->stream->current->paused : NOT_PAUSED;
        if (pause == PAUSED_FOR_LOOP)
            return yield_to_loop(self, result);
        if (ask_for_more(self, pause == PAUSED_FOR_BODY) < 0)
            return failed(self);
        switch (PyIter_Send(self->inner, Py_None, &answer)) {
        case PYGEN_NEXT:
            *result = answer;
            return PYGEN_NEXT;
        case PYGEN_ERROR:
            return failed(self);
        case PYGEN_RETURN:
            if (take_more(self, answer) < 0)
                return failed(self);
        }
    }
}

static PySendResult step_begin(Step *self, PyObject **result)
{
    if (self->stream->waiting != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another task already waits for the next record");
        return failed(self);
    }
    return step_advance(self, result);
}

static int refuse(const Step *self)
{
    if (self->state == DONE)
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited AsyncRecords.__anext__()");
    else if (self->running)
        PyErr_SetString(PyExc_RuntimeError, "AsyncRecords.__anext__() is already running");
    else
        return 0;
    return -1;
}

static PySendResult step_send(Step *self, PyObject *value, PyObject **result)
{
    PySendResult outcome;
    *result = NULL;
    if (refuse(self) < 0)
        return PYGEN_ERROR;
    Py_INCREF(self); /* code that runs meanwhile may drop the last other reference */
    self->running = true;
    if (self->state == FRESH)
        outcome = step_begin(self, result);
    else if (self->state == PAUSED) {
        self->stream->waiting = NULL;
        outcome = step_advance(self, result);
    }
    else {
        PyObject *answer;
        outcome = PyIter_Send(self->inner, value, &answer);
        if (outcome == PYGEN_NEXT)
            *result = answer;
        else if (outcome == PYGEN_ERROR || take_more(self, answer) < 0)
            outcome = failed(self);
        else
            outcome = step_advance(self, result);
    }
    self->running = false;
    Py_DECREF(self);
    return outcome;
}

/* --- the same for those who call methods -------------------------------------------------------------- */

static PyObject *as_call(PySendResult outcome, PyObject *result)
{
    if (outcome == PYGEN_RETURN) {
        PyErr_SetObject(PyExc_StopIteration, result);
        Py_DECREF(result);
        return NULL;
    }
    return outcome == PYGEN_NEXT ? result : NULL;
}

static PyObject *step_send_method(Step *self, PyObject *value)
{
    PyObject *result;
    PySendResult outcome = step_send(self, value, &result);
    return as_call(outcome, result);
}

static PyObject *step_next(Step *self) { return step_send_method(self, Py_None); }

/* The value of the StopIteration that is set; NULL if something else is. */
static PyObject *returned_value(void)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return NULL;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *value = PyObject_GetAttrString(error, "value");
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *raise_here(Step *self, PyObject *args)
{
    PyObject *type, *error = NULL, *traceback = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &error, &traceback))
        return NULL;
    if (PyExceptionInstance_Check(type))
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    else if (PyExceptionClass_Check(type))
        PyErr_SetObject(type, error ? error : Py_None);
    else
        PyErr_SetString(PyExc_TypeError, "exceptions must be classes or instances deriving from BaseException");
    failed(self);
    return NULL;
}

static PyObject *throw_into(Step *self, PyObject *args)
{
    PyObject *method = PyObject_GetAttrString(self->inner, "throw");
    if (method == NULL) {
        PyErr_Clear();
        return raise_here(self, args);
    }
    PyObject *answer = PyObject_CallObject(method, args), *result = NULL;
    Py_DECREF(method);
    if (answer != NULL)
        return answer; /* it waits for something else now */
    answer = returned_value();
    if (answer == NULL || take_more(self, answer) < 0) {
        failed(self);
        return NULL;
    }
    PySendResult outcome = step_advance(self, &result);
    return as_call(outcome, result);
}

static PyObject *step_throw(Step *self, PyObject *args)
{
    if (refuse(self) < 0)
        return NULL;
    if (self->state != WAITING)
        return raise_here(self, args);
    Py_INCREF(self);
    self->running = true;
    PyObject *result = throw_into(self, args);
    self->running = false;
    Py_DECREF(self);
    return result;
}

static PyObject *step_close(Step *self, PyObject *Py_UNUSED(ignored))
{
    if (self->state != DONE && refuse(self) < 0)
        return NULL;
    PyObject *inner = self->inner ? Py_NewRef(self->inner) : NULL, *closed;
    if (inner != NULL && PyObject_HasAttrString(inner, "close"))
        closed = PyObject_CallMethod(inner, "close", NULL);
    else
        closed = Py_NewRef(Py_None);
    Py_XDECREF(inner);
    failed(self);
    return closed;
}

static int step_traverse(Step *self, visitproc visit, void *arg)
{
    Py_VISIT(self->stream);
    Py_VISIT(self->inner);
    return 0;
}

static int step_clear(Step *self)
{
    step_finish(self);
    return 0;
}

static void step_dealloc(Step *self)
{
    PyObject_GC_UnTrack(self);
    step_finish(self);
    PyObject_GC_Del(self);
}

static PyMethodDef step_methods[] = {
    {"send", (PyCFunction)step_send_method, METH_O, NULL},
    {"throw", (PyCFunction)step_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)step_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyAsyncMethods step_as_async = {
    .am_await = PyObject_SelfIter,
    .am_send = (sendfunc)step_send,
};

static PyTypeObject Step_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records._Step",
    .tp_basicsize = sizeof(Step),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)step_dealloc,
    .tp_traverse = (traverseproc)step_traverse,
    .tp_clear = (inquiry)step_clear,
    .tp_as_async = &step_as_async,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)step_next,
    .tp_methods = step_methods,
};

Step *step_new(void)
{
    Step *step = PyObject_GC_New(Step, &Step_Type);
    if (step == NULL)
        return NULL;
    step->stream = NULL;
    step->inner = NULL;
    step->state = DONE;
    step->running = false;
    PyObject_GC_Track(step);
    return step;
}

int step_prepare(void) { return PyType_Ready(&Step_Type); }
