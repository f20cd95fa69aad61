/* Declarations that AsyncRecords and the steps of its iteration share. */

#ifndef ASYNCCONSUMER_STREAM_H
#define ASYNCCONSUMER_STREAM_H

#include "builder.h"
#include "clock.h"

typedef struct Step Step;

/* A record that was put back because its message is not ready. `records` and `offset` identify it. */
enum Pending { PENDING_NONE, PENDING_RETRY, PENDING_AWAITABLE, PENDING_FAILED, PENDING_MESSAGE, PENDING_SKIP };
typedef struct {
    enum Pending kind;
    Records *records; /* borrowed: only compared, and cleared before other Records become current */
    int64_t offset;
    PyObject *record; /* after the interceptors, which are called once */
    PyObject *value;  /* the awaitable, the error or the message */
} PendingRecord;

typedef struct {
    PyObject_HEAD
    PyObject *refill;
    Records *current;
    Step *waiting;            /* borrowed: the Step that waits, or NULL */
    Step *spare;              /* reused for the next __anext__() if there is no other reference to it then */
    long long last_offset;
    double deadline;          /* after it, refill() is called before the next record is returned */
    double wall_deadline;     /* the same moment on the wall clock, which also counts suspended time */
    PyObject *clock;          /* a function, or NULL for the system's clocks */
    PyObject *recover;        /* called with an error of the records: returns whether to call refill(); or NULL */
    bool ended;
    bool in_flight;           /* whether a record was returned and the next one has not been requested */
    MessageBuilder *builder;  /* creates the items from records; or NULL */
    PyObject *unreadable;     /* called with the error of an unreadable record or batch: returns an awaitable or None;
                                 or NULL */
    long long remaining;      /* number of records that may still be returned; -1: no limit */
    PendingRecord pending;
    int returned_since_pause; /* records since the event loop could last run */
} AsyncRecords;

enum StepState { STEP_NEW, STEP_WAITING, STEP_PAUSED, STEP_DONE };
enum Wait {
    WAIT_NONE,
    WAIT_REFILL,  /* refill() */
    WAIT_BODY,    /* decompression of a large body of the current records in another thread */
    WAIT_MESSAGE, /* the awaitable of a message */
    WAIT_SKIP,    /* the poison policy for an unreadable record, which is skipped afterwards */
    WAIT_CORRUPT, /* the poison policy for a corrupt batch */
};

struct Step {
    PyObject_HEAD
    AsyncRecords *stream; /* NULL in STEP_DONE, because a reference of an idle spare step to its owner would be a
                             cycle */
    PyObject *inner;      /* the iterator of the awaitable in STEP_WAITING */
    enum StepState state;
    enum Wait wait;       /* the purpose of the current wait, or of the last one */
    bool running;         /* whether this step is executing; reentrant calls are refused */
};

/* items.c: the next item of the current records. */
enum Outcome {
    READ_ERROR = -2, /* an exception of the records is set */
    ITEM_ERROR,      /* an exception of a deserializer is set, and the record was put back */
    NO_ITEM,         /* there is no item, or the records paused */
    ITEM,            /* *item is the next record or message */
    ITEM_AWAITS,     /* *item is an awaitable for the next message, and the record was put back */
};
enum Outcome next_item(AsyncRecords *stream, PyObject **item);
void pending_clear(PendingRecord *pending);

/* Steals `value`. Does nothing if the pending record was cleared meanwhile. */
void pending_set(PendingRecord *pending, enum Pending kind, PyObject *value);

/* Passes the pending record if it is to be skipped, before other records become current. -1 with an exception. */
int skip_pending(AsyncRecords *stream);
int is_late(const AsyncRecords *stream);
PyObject *stream_take(AsyncRecords *self, PyObject *args);

/* Sets the exception for a task that requests a record while another task waits for one. */
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
