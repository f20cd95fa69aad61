/* The end offset of a record set, from its batch headers. A fetcher uses it to send the next fetch before the
   records are decoded. */

#include "native.h"

enum { ENTRY_HEADER_SIZE = 12, EPOCH_POSITION = 12, MAGIC_POSITION = 16, LAST_DELTA_POSITION = 23 };
enum { MIN_V2_SIZE = 61, MIN_LEGACY_SIZE = 26 };

/* Returns the offset after the last complete batch or message, or `default_offset` if there is none. Sets `epoch` to
   the leader epoch of that batch. Messages have none. */
static int64_t end_of(const uint8_t *position, const uint8_t *end, int64_t default_offset, int32_t *epoch)
{
    int64_t end_offset = default_offset;
    while (end - position >= MIN_LEGACY_SIZE) {
        int64_t size = ENTRY_HEADER_SIZE + (int64_t)int32_at(position + 8);
        bool is_v2 = (int8_t)position[MAGIC_POSITION] >= 2;
        if (size < (is_v2 ? MIN_V2_SIZE : MIN_LEGACY_SIZE) || size > end - position)
            break; /* incomplete or corrupt: the decoder will report the error */
        int64_t last = int64_at(position);
        int32_t delta = is_v2 ? int32_at(position + LAST_DELTA_POSITION) : 0;
        if (last < 0 || delta < 0 || last > INT64_MAX - delta - 1)
            break;
        end_offset = last + delta + 1;
        *epoch = is_v2 ? int32_at(position + EPOCH_POSITION) : -1;
        position += size;
    }
    return end_offset;
}

PyObject *record_set_end(PyObject *module, PyObject *args)
{
    Py_buffer view;
    long long default_offset;
    if (!PyArg_ParseTuple(args, "y*L:record_set_end", &view, &default_offset))
        return NULL;
    int32_t epoch = -1;
    int64_t end_offset = end_of(view.buf, (const uint8_t *)view.buf + view.len, default_offset, &epoch);
    PyBuffer_Release(&view);
    return Py_BuildValue("Li", (long long)end_offset, (int)epoch);
}
