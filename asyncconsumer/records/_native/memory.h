/* Memory for columns and frames that is reused while it is in the processor's cache.

   The page faults of a fresh megabyte take more time than decoding into it (56 of 93 ns per record, measured). So a
   few freed blocks are kept for reuse. */

#ifndef ASYNCCONSUMER_MEMORY_H
#define ASYNCCONSUMER_MEMORY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct {
    char *start;
    Py_ssize_t used, capacity;
} Buffer;

int buffer_grow(Buffer *buffer, Py_ssize_t extra);
void buffer_free(Buffer *buffer);

/* Returns the written bytes as an object with the buffer protocol. The Buffer is empty afterwards. */
PyObject *buffer_finish(Buffer *buffer);

static inline char *buffer_extend(Buffer *buffer, Py_ssize_t extra)
{
    if (buffer->capacity - buffer->used < extra && buffer_grow(buffer, extra) < 0)
        return NULL;
    char *position = buffer->start + buffer->used;
    buffer->used += extra;
    return position;
}

static inline int buffer_append(Buffer *buffer, const void *data, Py_ssize_t length)
{
    char *position = buffer_extend(buffer, length);
    if (position == NULL)
        return -1;
    memcpy(position, data, (size_t)length);
    return 0;
}

/* The object that owns the memory of a Buffer. */
typedef struct {
    PyObject_HEAD
    Buffer memory;
    bool writable;
} Slab;

int memory_prepare(void);
PyObject *room_for(PyObject *module, PyObject *size);

#endif
