/* Clocks in seconds. */

#ifndef ASYNCCONSUMER_CLOCK_H
#define ASYNCCONSUMER_CLOCK_H

#include <time.h>

static inline double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Reading a coarse clock takes a few nanoseconds. Its time is up to a few milliseconds old. */
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

#endif

