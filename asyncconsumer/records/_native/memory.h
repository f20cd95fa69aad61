/* Memory for columns and for frames that is used again while it is still warm.

   A fresh megabyte costs more in page faults than decoding into it costs in time (measured: 56 of
   93 ns a record). So blocks of arrays that were let go are kept, a few and not too many bytes. */

#ifndef ASYNCCONSUMER_MEMORY_H
#define ASYNCCONSUMER_MEMORY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct {
    char *start;
    Py_ssize_t used, room;
} Buffer;

int buffer_grow(Buffer *buffer, Py_ssize_t extra);
void buffer_free(Buffer *buffer);

/* What was written, as an object with the buffer protocol; the Buffer is empty afterwards. */
PyObject *buffer_finish(Buffer *buffer);

static inline char *buffer_extend(Buffer *buffer, Py_ssize_t extra)
{
    if (buffer->room - buffer->used < extra && buffer_grow(buffer, extra) < 0)
        return NULL;
    char *at = buffer->start + buffer->used;
    buffer->used += extra;
    return at;
}

static inline int buffer_append(Buffer *buffer, const void *data, Py_ssize_t length)
{
    char *at = buffer_extend(buffer, length);
    if (at == NULL)
        return -1;
    memcpy(at, data, (size_t)length);
    return 0;
}

/* The memory of what buffer_finish gave. */
typedef struct {
    PyObject_HEAD
    Buffer memory;
    bool writable;
} Slab;

int memory_prepare(void);
PyObject *room_for(PyObject *module, PyObject *size);

#endif
