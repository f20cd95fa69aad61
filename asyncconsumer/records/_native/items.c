/* The next item of the current records: a record, or the message that the builder creates from it.

   A record whose message is not ready is put back. So positions, commits and revocations count it as not delivered,
   and a cancelled wait loses nothing. The state of its message is stored as the pending record. */

#include "stream.h"

#include "errors.h"

void pending_clear(PendingRecord *pending)
{
    PyObject *record = pending->record, *value = pending->value;
    pending->kind = PENDING_NONE;
    pending->records = NULL;
    pending->record = pending->value = NULL;
    Py_XDECREF(record);
    Py_XDECREF(value);
}

void pending_set(PendingRecord *pending, enum Pending kind, PyObject *value)
{
    if (pending->kind == PENDING_NONE) {
        Py_XDECREF(value);
        return;
    }
    pending->kind = kind;
    Py_XSETREF(pending->value, value);
}

static inline void count_returned(AsyncRecords *stream, const Records *current)
{
    stream->returned_since_pause++;
    stream->last_offset = current->returned_offset;
    stream->in_flight = true;
    if (stream->remaining > 0)
        stream->remaining--;
}

/* Continues with the pending record. *item is then its message or awaitable, if there is one. */
static enum Outcome resume_pending(PendingRecord *pending, MessageBuilder *builder, PyObject **item)
{
    enum Pending kind = pending->kind;
    PyObject *value = pending->value;
    pending->kind = PENDING_RETRY;
    pending->value = NULL;
    switch (kind) {
    case PENDING_MESSAGE:
        *item = value;
        return ITEM;
    case PENDING_AWAITABLE:
        *item = value;
        return ITEM_AWAITS;
    case PENDING_FAILED:
        error_raise(value);
        return ITEM_ERROR;
    default: {
        PyObject *record = Py_NewRef(pending->record);
        enum Built built = builder_build(builder, record, item);
        Py_DECREF(record);
        return built == BUILD_DONE ? ITEM : built == BUILD_AWAITS ? ITEM_AWAITS : ITEM_ERROR;
    }
    }
}

/* Creates an item from a record that was read now. */
static enum Outcome build_item(AsyncRecords *stream, MessageBuilder *builder, Records *current,
                               const ParsedRecord *parsed, PyObject **item)
{
    PyObject *record;
    enum Built built;
    if (PyTuple_GET_SIZE(builder->interceptors) == 0)
        built = builder_build_at(builder, current, parsed, &record, item);
    else {
        record = record_create(current->topic, current->partition, parsed);
        if (record != NULL)
            record = builder_intercept(builder, record);
        built = record == NULL ? BUILD_ERROR : builder_build(builder, record, item);
    }
    if (built == BUILD_DONE) {
        Py_XDECREF(record);
        return ITEM;
    }
    /* If the builder was replaced meanwhile, the new one begins with the original record. */
    if (stream->builder != builder)
        Py_XDECREF(record);
    else if (record != NULL) {
        stream->pending.kind = PENDING_RETRY;
        stream->pending.records = current;
        stream->pending.offset = parsed->offset;
        Py_XSETREF(stream->pending.record, record);
    }
    return built == BUILD_AWAITS ? ITEM_AWAITS : ITEM_ERROR;
}

/* The same as next_item(). With NO_ITEM and `*skipped`, a record was skipped. */
static enum Outcome take_item(AsyncRecords *stream, MessageBuilder *builder, Records *current, PyObject **item,
                              bool *skipped)
{
    ParsedRecord parsed;
    if (!records_begin_read(current, &parsed))
        return PyErr_Occurred() ? READ_ERROR : NO_ITEM;
    PendingRecord *pending = &stream->pending;
    enum Outcome outcome;
    if (pending->kind != PENDING_NONE && (pending->records != current || pending->offset != parsed.offset))
        pending_clear(pending);
    if (pending->kind == PENDING_NONE)
        outcome = build_item(stream, builder, current, &parsed, item);
    else {
        *skipped = pending->kind == PENDING_SKIP;
        outcome = *skipped ? ITEM : resume_pending(pending, builder, item);
    }
    if (outcome == ITEM && pending->kind != PENDING_NONE)
        pending_clear(pending);
    records_end_read(current, outcome == ITEM ? NULL : &parsed);
    if (*skipped) {
        stream->returned_since_pause++;
        return NO_ITEM;
    }
    return outcome;
}

enum Outcome next_item(AsyncRecords *stream, PyObject **item)
{
    Records *current = stream->current;
    MessageBuilder *builder = stream->builder;
    enum Outcome outcome = NO_ITEM;
    if (current == NULL)
        return NO_ITEM;
    Py_INCREF(current);
    if (builder == NULL) {
        *item = records_next(current);
        outcome = *item != NULL ? ITEM : PyErr_Occurred() ? READ_ERROR : NO_ITEM;
    }
    else {
        bool skipped;
        Py_INCREF(builder); /* code that runs meanwhile may replace the builder */
        do {
            skipped = false;
            outcome = take_item(stream, builder, current, item, &skipped);
        } while (skipped && stream->current == current);
        Py_DECREF(builder);
    }
    if (outcome == ITEM)
        count_returned(stream, current);
    Py_DECREF(current);
    return outcome;
}

int skip_pending(AsyncRecords *stream)
{
    Records *current = stream->current;
    ParsedRecord parsed;
    if (stream->pending.kind != PENDING_SKIP || current == NULL || stream->pending.records != current)
        return 0;
    Py_INCREF(current);
    bool has_record = records_begin_read(current, &parsed);
    bool failed = !has_record && PyErr_Occurred() && current->error == NULL;
    if (has_record) {
        records_end_read(current, parsed.offset == stream->pending.offset ? NULL : &parsed);
        pending_clear(&stream->pending);
    }
    else if (!failed)
        PyErr_Clear(); /* the Records raise it again */
    Py_DECREF(current);
    return failed ? -1 : 0;
}

/* Whether refill() must be called, although there may be more records: 1, 0, or -1 with an exception. The monotonic
   clock stops while the machine is suspended. The wall clock does not. */
int is_late(const AsyncRecords *stream)
{
    if (stream->clock == NULL)
        return monotonic_seconds() >= stream->deadline || wall_seconds() >= stream->wall_deadline;
    PyObject *time = PyObject_CallNoArgs(stream->clock);
    if (time == NULL)
        return -1;
    double now = PyFloat_AsDouble(time);
    Py_DECREF(time);
    return now == -1.0 && PyErr_Occurred() ? -1 : now >= stream->deadline;
}

/* --- many items at once ---------------------------------------------------------------------------------- */

enum { ITEMS_BETWEEN_CLOCK_READS = 64 };

static int can_take(const AsyncRecords *self)
{
    if (self->current == NULL || self->ended || self->remaining == 0
        || self->returned_since_pause >= RECORDS_BETWEEN_PAUSES)
        return 0;
    int late = self->deadline < Py_HUGE_VAL ? is_late(self) : 0;
    return late < 0 ? -1 : !late;
}

/* Stores an outcome for the next Step, which can await or raise it. */
static int keep_outcome(AsyncRecords *self, enum Outcome outcome, PyObject *item)
{
    if (outcome == ITEM_AWAITS) {
        pending_set(&self->pending, PENDING_AWAITABLE, item);
        return 0;
    }
    if (outcome == NO_ITEM)
        return 0;
    if (outcome == READ_ERROR && self->current != NULL && self->current->error != NULL) {
        PyErr_Clear(); /* the Records raise it again */
        return 0;
    }
    if (outcome == READ_ERROR || self->pending.kind != PENDING_RETRY || !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    pending_set(&self->pending, PENDING_FAILED, error_fetch());
    return 0;
}

PyObject *stream_take(AsyncRecords *self, PyObject *args)
{
    PyObject *items;
    Py_ssize_t limit, count = 0;
    if (!PyArg_ParseTuple(args, "O!n:take", &PyList_Type, &items, &limit))
        return NULL;
    if (self->waiting != NULL) {
        raise_second_reader();
        return NULL;
    }
    self->in_flight = false;
    Records *first = self->current;
    while (count < limit && self->current == first) {
        if (count % ITEMS_BETWEEN_CLOCK_READS == 0 || self->returned_since_pause >= RECORDS_BETWEEN_PAUSES
            || self->remaining == 0) {
            int is_allowed = can_take(self);
            if (is_allowed < 0)
                return NULL;
            if (!is_allowed)
                break;
        }
        PyObject *item = NULL;
        enum Outcome outcome = next_item(self, &item);
        if (outcome != ITEM) {
            if (keep_outcome(self, outcome, item) < 0)
                return NULL;
            break;
        }
        int appended = PyList_Append(items, item);
        Py_DECREF(item);
        if (appended < 0)
            return NULL;
        count++;
    }
    return PyLong_FromSsize_t(count);
}
