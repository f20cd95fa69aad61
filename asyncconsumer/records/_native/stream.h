/* What AsyncRecords and the steps of its iteration know of each other. */

#ifndef ASYNCCONSUMER_STREAM_H
#define ASYNCCONSUMER_STREAM_H

#include "builder.h"
#include "clock.h"

typedef struct Step Step;

/* A record that was read and put back, because its message was not ready. `of` and `offset` say which one. */
enum Pending { PENDING_NONE, PENDING_RETRY, PENDING_AWAITABLE, PENDING_FAILED, PENDING_MESSAGE, PENDING_SKIP };
typedef struct {
    enum Pending kind;
    Records *records;      /* not counted as a reference: only compared, and cleared before others are current */
    int64_t offset;
    PyObject *record;      /* after the interceptors, which are called once */
    PyObject *value;       /* the awaitable, the error or the message */
} PendingRecord;

typedef struct {
    PyObject_HEAD
    PyObject *refill;
    Records *current;
    Step *waiting;         /* the Step that awaits refill(), not counted as a reference */
    Step *spare;           /* for the next __anext__, if it is free by then */
    long long last_offset;
    double deadline;       /* by the clock: after it, refill() is asked before each record */
    double wall_deadline;  /* the same moment by the wall clock, which also counts suspended time */
    PyObject *clock;       /* a function, or NULL for the system's */
    PyObject *recover;     /* asked of an error whether refill() has better records; or NULL */
    bool ended;
    bool in_flight;          /* a record was handed out, and none asked for since */
    MessageBuilder *builder; /* makes messages of records; or NULL */
    PyObject *unreadable;  /* asked of an error what to await before the next record is read; or NULL */
    long long remaining;   /* records that may still be handed out; -1: no limit */
    PendingRecord pending;
    int returned_since_pause;        /* records since the event loop last had a chance to run */
} AsyncRecords;

enum StepState { STEP_NEW, STEP_WAITING, STEP_PAUSED, STEP_DONE };
enum Wait {
    WAIT_NONE,
    WAIT_REFILL,           /* refill() */
    WAIT_BODY,              /* a large body of the current records is decompressed in a thread */
    WAIT_MESSAGE,           /* a deserializer */
    WAIT_SKIP,              /* the policy for an unreadable record, which is skipped after it */
    WAIT_CORRUPT,           /* the policy for a corrupt batch */
};

struct Step {
    PyObject_HEAD
    AsyncRecords *stream;  /* NULL once done: an idle spare must not hold its holder */
    PyObject *inner;       /* the iterator that WAITING drives */
    enum StepState state;
    enum Wait wait;        /* what WAITING waits for; after that, what it has waited for */
    bool running;          /* on the stack right now: whoever comes again is refused */
};

/* items.c: the next item of the records in hand. */
enum Outcome {
    READ_ERROR = -2,       /* an exception of the records is set */
    ITEM_ERROR,            /* an exception of the deserializers is set, and the record was put back */
    NO_ITEM,               /* there is none, or the records paused */
    ITEM,                  /* *item is the next record or message */
    ITEM_AWAITS,           /* *item is an awaitable for the next message, and the record was put back */
};
enum Outcome next_item(AsyncRecords *stream, PyObject **item);
void pending_clear(PendingRecord *pending);

/* Steals `value`. Does nothing if the pending record was cleared meanwhile. */
void pending_set(PendingRecord *pending, enum Pending kind, PyObject *value);

/* Reads the pending record if it is to be skipped, before other records become current. -1 with an exception. */
int skip_pending(AsyncRecords *stream);
int is_late(const AsyncRecords *stream);
PyObject *stream_take(AsyncRecords *self, PyObject *args);

/* Sets the exception for a task that reads while another one waits. */
static inline void raise_second_reader(void)
{
    PyErr_SetString(PyExc_RuntimeError, "another task already waits for the next record of this stream. "
                                        "Read it from one task, or use `streams(n)`");
}

enum { RECORDS_BETWEEN_PAUSES = 8192 };

Step *step_new(void);
void step_finish(Step *self);
int step_prepare(void);

#endif
