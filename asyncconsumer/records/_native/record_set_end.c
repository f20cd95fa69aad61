/* Where a record set ends, told from the headers of its batches: what a fetcher needs to ask for the
   next one before anybody has decoded this one. */

#include "native.h"

enum { ENTRY_HEADER_SIZE = 12, EPOCH_AT = 12, MAGIC_AT = 16, LAST_DELTA_AT = 23, V2_LEAST = 61, LEGACY_LEAST = 26 };

/* The offset behind the last whole batch or message, or `otherwise` if there is none. `epoch` is set to the
   leader epoch of that batch; messages have none. */
static int64_t end_of(const uint8_t *at, const uint8_t *end, int64_t otherwise, int32_t *epoch)
{
    int64_t behind = otherwise;
    while (end - at >= LEGACY_LEAST) {
        int64_t whole = ENTRY_HEADER_SIZE + (int64_t)int32_at(at + 8);
        bool modern = (int8_t)at[MAGIC_AT] >= 2;
        if (whole < (modern ? V2_LEAST : LEGACY_LEAST) || whole > end - at)
            break; /* cut short, or damaged: whoever decodes it will say so */
        int64_t last = int64_at(at);
        int32_t delta = modern ? int32_at(at + LAST_DELTA_AT) : 0;
        if (last < 0 || delta < 0 || last > INT64_MAX - delta - 1)
            break;
        behind = last + delta + 1;
        *epoch = modern ? int32_at(at + EPOCH_AT) : -1;
        at += whole;
    }
    return behind;
}

PyObject *record_set_end(PyObject *module, PyObject *args)
{
    Py_buffer view;
    long long otherwise;
    if (!PyArg_ParseTuple(args, "y*L:record_set_end", &view, &otherwise))
        return NULL;
    int32_t epoch = -1;
    int64_t behind = end_of(view.buf, (const uint8_t *)view.buf + view.len, otherwise, &epoch);
    PyBuffer_Release(&view);
    return Py_BuildValue("Li", (long long)behind, (int)epoch);
}
