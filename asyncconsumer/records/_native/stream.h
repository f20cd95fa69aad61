/* What AsyncRecords and the steps of its iteration know of each other. */

#ifndef ASYNCCONSUMER_STREAM_H
#define ASYNCCONSUMER_STREAM_H

#include "native.h"

#include <time.h>

typedef struct Step Step;

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
    bool in_hand;          /* a record was handed out, and none asked for since */
    int handed_out;        /* records since the event loop last had a chance to run */
} AsyncRecords;

enum State { FRESH, WAITING, PAUSED, DONE };

struct Step {
    PyObject_HEAD
    AsyncRecords *stream;  /* NULL once done: an idle spare must not hold its holder */
    PyObject *inner;       /* what WAITING waits for */
    enum State state;
    bool running;          /* on the stack right now: whoever comes again is refused */
};

/* The coarse clocks cost a few nanoseconds, and are late by a few milliseconds at the most. */
static inline double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline double monotonic_seconds(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    return seconds_of(CLOCK_MONOTONIC_COARSE);
#else
    return seconds_of(CLOCK_MONOTONIC);
#endif
}

static inline double wall_seconds(void)
{
#ifdef CLOCK_REALTIME_COARSE
    return seconds_of(CLOCK_REALTIME_COARSE);
#else
    return seconds_of(CLOCK_REALTIME);
#endif
}

Step *step_new(void);
void step_finish(Step *self);
int step_prepare(void);

#endif
