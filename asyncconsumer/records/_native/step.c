/* The awaitable that AsyncRecords.__anext__() returns. */

#include "stream.h"

#include "await.h"
#include "errors.h"

static PyTypeObject Step_Type;

void step_finish(Step *self)
{
    AsyncRecords *stream = self->stream;
    self->state = STEP_DONE;
    self->stream = NULL;
    if (stream != NULL && stream->waiting == self)
        stream->waiting = NULL;
    Py_CLEAR(self->inner);
    Py_XDECREF(stream);
}

static PySendResult finish_with_error(Step *self)
{
    PyObject *error = error_fetch(); /* clearing references may run code that changes the exception */
    step_finish(self);
    error_raise(error);
    return PYGEN_ERROR;
}

/* Begins to wait for an awaitable, which is stolen. -1 with an exception. */
static int begin_wait(Step *self, PyObject *awaitable, enum Wait wait)
{
    AsyncRecords *stream = self->stream;
    self->state = STEP_WAITING;
    self->wait = wait;
    stream->waiting = self;
    stream->returned_since_pause = 0;
    if (awaitable == NULL)
        return -1;
    self->inner = await_iterator(awaitable);
    return self->inner ? 0 : -1;
}

/* Waits until another thread has decompressed the next body of the current records. */
static int wait_for_body(Step *self)
{
    Records *current = self->stream->current;
    PyObject *awaitable = PyObject_CallMethod(current->bodies, "prepare", "O", (PyObject *)current);
    return begin_wait(self, awaitable, WAIT_BODY);
}

static int set_records(AsyncRecords *stream, PyObject *records)
{
    /* Records without a reference may be deallocated, and other Records could get their address. */
    if ((PyObject *)stream->pending.records != records)
        pending_clear(&stream->pending);
    if (records == Py_None) {
        stream->ended = true;
        Py_CLEAR(stream->current);
        Py_DECREF(records);
        return 0;
    }
    if (!Py_IS_TYPE(records, &Records_Type)) {
        PyErr_Format(PyExc_TypeError, "refill() must return Records or None, not %.100s", Py_TYPE(records)->tp_name);
        Py_DECREF(records);
        return -1;
    }
    ((Records *)records)->cooperative = true;
    Py_XSETREF(stream->current, (Records *)records);
    return 0;
}

/* Ends a wait whose result is `awaited`, which is stolen. */
static int end_wait(Step *self, PyObject *awaited)
{
    AsyncRecords *stream = self->stream;
    Py_CLEAR(self->inner);
    stream->waiting = NULL;
    switch (self->wait) {
    case WAIT_MESSAGE:
        pending_set(&stream->pending, PENDING_MESSAGE, awaited); /* delivered when its record is read again */
        return 0;
    case WAIT_REFILL:
        return set_records(stream, awaited);
    case WAIT_SKIP:
        pending_set(&stream->pending, PENDING_SKIP, NULL);
        break;
    default:
        break;
    }
    Py_DECREF(awaited);
    return 0;
}

/* Yields to the event loop, as `await asyncio.sleep(0)` does. The next send() starts the step again. */
static PySendResult yield_to_loop(Step *self, PyObject **result)
{
    AsyncRecords *stream = self->stream;
    self->state = STEP_PAUSED;
    self->wait = WAIT_NONE;
    stream->waiting = self;
    stream->returned_since_pause = 0;
    if (stream->current != NULL) {
        stream->current->worked = 0;
        stream->current->paused = NOT_PAUSED;
    }
    *result = Py_NewRef(Py_None);
    return PYGEN_NEXT;
}

/* Calls a policy with the error that is set. Returns 1 with *result, or 0 if the policy returned None and the error
   is set again. Returns -1 if the policy failed. */
static int call_policy(PyObject *function, PyObject **result)
{
    PyObject *error = error_fetch();
    Py_INCREF(function); /* code that runs meanwhile may replace it */
    *result = PyObject_CallOneArg(function, error);
    Py_DECREF(function);
    if (*result != Py_None) {
        Py_DECREF(error);
        return *result == NULL ? -1 : 1;
    }
    Py_CLEAR(*result);
    error_raise(error);
    return 0;
}

/* Whether a function is called with the error that is set. It is not called for a cancellation. */
static bool is_handled_by(const PyObject *function)
{
    return function != NULL && function != Py_None && PyErr_ExceptionMatches(PyExc_Exception);
}

/* Returns 1 if refill() is to be called and the error that is set was dropped. Returns 0 if the error is still set,
   and -1 if `recover` failed. */
static int try_recover(AsyncRecords *stream)
{
    if (!is_handled_by(stream->recover))
        return 0;
    PyObject *error = error_fetch(), *function = Py_NewRef(stream->recover);
    PyObject *result = PyObject_CallOneArg(function, error);
    int is_true = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    Py_DECREF(function);
    if (is_true == 0)
        error_raise(error);
    else
        Py_DECREF(error);
    return is_true;
}

/* Whether the record of the error that is set may be read later: after a retriable error, or after a cancellation. */
static bool is_temporary(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return true;
    PyObject *error = error_fetch();
    PyObject *retriable = PyObject_GetAttrString(error, "retriable");
    int temporary = retriable == NULL ? 0 : PyObject_IsTrue(retriable);
    Py_XDECREF(retriable);
    if (temporary <= 0)
        PyErr_Clear();
    error_raise(error);
    return temporary > 0;
}

/* Applies the poison policy to the error that is set. Returns true if an awaitable of the policy is awaited, and
   false with an exception. */
static bool await_policy(Step *self, enum Outcome outcome)
{
    AsyncRecords *stream = self->stream;
    if (outcome == ITEM_ERROR && is_temporary())
        return false;
    if (is_handled_by(stream->unreadable)) {
        PyObject *awaitable;
        int status = call_policy(stream->unreadable, &awaitable);
        if (status > 0)
            return begin_wait(self, awaitable, outcome == ITEM_ERROR ? WAIT_SKIP : WAIT_CORRUPT) == 0;
        if (status < 0)
            return false;
    }
    if (outcome == ITEM_ERROR)
        pending_set(&stream->pending, PENDING_SKIP, NULL); /* the next request acknowledges it */
    return false;
}

/* Reads until there is an item or a wait. Returns ITEM with *item, or NO_ITEM if a wait has begun or *pause is set. */
static enum Outcome step_read(Step *self, int late, PyObject **item, bool *pause)
{
    AsyncRecords *stream = self->stream;
    bool stop = late || stream->remaining == 0;
    if (stop && skip_pending(stream) < 0)
        return READ_ERROR;
    enum Outcome outcome = stop ? NO_ITEM : next_item(stream, item);
    bool was_read = !stop && stream->current != NULL;
    if (outcome == ITEM)
        return ITEM;
    if (outcome == ITEM_AWAITS)
        return begin_wait(self, *item, WAIT_MESSAGE) < 0 ? READ_ERROR : NO_ITEM;
    int recovery = outcome == READ_ERROR ? try_recover(stream) : 0;
    if (recovery < 0)
        return READ_ERROR;
    if (outcome == ITEM_ERROR || (outcome == READ_ERROR && !recovery))
        return await_policy(self, outcome) ? NO_ITEM : READ_ERROR;
    enum Pause reason = was_read && stream->current != NULL ? stream->current->paused : NOT_PAUSED;
    bool for_body = reason == PAUSED_FOR_BODY && stream->current->bodies != NULL;
    *pause = (reason != NOT_PAUSED && !for_body) || stream->ended;
    if (*pause)
        return NO_ITEM;
    int status = for_body ? wait_for_body(self) : begin_wait(self, PyObject_CallNoArgs(stream->refill), WAIT_REFILL);
    return status < 0 ? READ_ERROR : NO_ITEM;
}

/* Handles the failure of a wait. Returns 0 if another wait has begun, and -1 with an exception. */
static int wait_failed(Step *self)
{
    if (self->wait != WAIT_MESSAGE)
        return -1;
    Py_CLEAR(self->inner);
    self->stream->waiting = NULL;
    return await_policy(self, ITEM_ERROR) ? 0 : -1;
}

/* Sends `value` to the awaitable. Returns PYGEN_RETURN without *result if the wait has ended. */
static PySendResult drive(Step *self, PyObject *value, PyObject **result)
{
    for (;; value = Py_None) {
        PyObject *awaited;
        switch (PyIter_Send(self->inner, value, &awaited)) {
        case PYGEN_NEXT:
            *result = awaited;
            return PYGEN_NEXT;
        case PYGEN_ERROR:
            if (wait_failed(self) < 0)
                return finish_with_error(self);
            break;
        case PYGEN_RETURN:
            return end_wait(self, awaited) < 0 ? finish_with_error(self) : PYGEN_RETURN;
        }
    }
}

/* The same as is_late(). Records that refill() has just returned are not late. After another wait they are always
   late, because the partition may be lost before the deadline. */
static int must_refill(const Step *self)
{
    const AsyncRecords *stream = self->stream;
    if (!(stream->deadline < Py_HUGE_VAL) || self->wait == WAIT_REFILL || stream->ended)
        return 0;
    return self->wait != WAIT_NONE ? 1 : is_late(stream);
}

static PySendResult step_advance(Step *self, PyObject **result)
{
    AsyncRecords *stream = self->stream;
    for (;;) {
        bool pause = false;
        PyObject *item = NULL;
        int late = must_refill(self);
        if (late < 0)
            return finish_with_error(self);
        if (stream->ended) {
            PyErr_SetNone(PyExc_StopAsyncIteration);
            return finish_with_error(self);
        }
        if (!late && stream->returned_since_pause >= RECORDS_BETWEEN_PAUSES)
            return yield_to_loop(self, result);
        switch (step_read(self, late, &item, &pause)) {
        case ITEM:
            step_finish(self);
            *result = item;
            return PYGEN_RETURN;
        case NO_ITEM:
            break;
        default:
            return finish_with_error(self);
        }
        if (pause && stream->ended)
            continue;
        if (pause)
            return yield_to_loop(self, result);
        PySendResult outcome = drive(self, Py_None, result);
        if (outcome != PYGEN_RETURN)
            return outcome;
    }
}

static PySendResult step_begin(Step *self, PyObject **result)
{
    if (self->stream->waiting != NULL) {
        raise_second_reader();
        return finish_with_error(self);
    }
    return step_advance(self, result);
}

static int refuse(const Step *self)
{
    if (self->state == STEP_DONE)
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
    if (self->state == STEP_NEW)
        outcome = step_begin(self, result);
    else if (self->state == STEP_PAUSED) {
        self->stream->waiting = NULL;
        outcome = step_advance(self, result);
    }
    else {
        outcome = drive(self, value, result);
        if (outcome == PYGEN_RETURN)
            outcome = step_advance(self, result);
    }
    self->running = false;
    Py_DECREF(self);
    return outcome;
}

/* --- the same as methods ------------------------------------------------------------------------------- */

static PyObject *step_send_method(Step *self, PyObject *value)
{
    PyObject *result;
    PySendResult outcome = step_send(self, value, &result);
    return method_result(outcome, result);
}

static PyObject *step_next(Step *self) { return step_send_method(self, Py_None); }

static PyObject *finish_with_thrown(Step *self, PyObject *args)
{
    raise_thrown(args);
    finish_with_error(self);
    return NULL;
}

static PyObject *throw_into(Step *self, PyObject *args)
{
    PyObject *method = PyObject_GetAttrString(self->inner, "throw");
    if (method == NULL) {
        PyErr_Clear();
        return finish_with_thrown(self, args);
    }
    PyObject *awaited = PyObject_CallObject(method, args), *result = NULL;
    Py_DECREF(method);
    if (awaited != NULL)
        return awaited; /* it awaits another object now */
    awaited = stop_iteration_value();
    PySendResult outcome = PYGEN_RETURN;
    if (awaited != NULL ? end_wait(self, awaited) < 0 : wait_failed(self) < 0)
        outcome = finish_with_error(self);
    else if (awaited == NULL)
        outcome = drive(self, Py_None, &result);
    if (outcome == PYGEN_RETURN)
        outcome = step_advance(self, &result);
    return method_result(outcome, result);
}

static PyObject *step_throw(Step *self, PyObject *args)
{
    if (refuse(self) < 0)
        return NULL;
    if (self->state != STEP_WAITING)
        return finish_with_thrown(self, args);
    Py_INCREF(self);
    self->running = true;
    PyObject *result = throw_into(self, args);
    self->running = false;
    Py_DECREF(self);
    return result;
}

static PyObject *step_close(Step *self, PyObject *Py_UNUSED(ignored))
{
    if (self->state != STEP_DONE && refuse(self) < 0)
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
    step->state = STEP_DONE;
    step->wait = WAIT_NONE;
    step->running = false;
    PyObject_GC_Track(step);
    return step;
}

int step_prepare(void) { return PyType_Ready(&Step_Type); }
