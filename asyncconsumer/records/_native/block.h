/* RecordBlock: records that were taken together, with their sizes. */

#ifndef ASYNCCONSUMER_BLOCK_H
#define ASYNCCONSUMER_BLOCK_H

#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *records;          /* a list */
    int64_t *ends;              /* for each record, the size of it and of all before it */
    Py_ssize_t count, capacity; /* of `ends` */
    Py_ssize_t index;           /* processing of the records from this index on has not started */
    Py_ssize_t counted;         /* records before this index are not in flight any more; set by the ledger */
} RecordBlock;

extern PyTypeObject RecordBlock_Type;

/* Returns a borrowed reference to the next record that has not started, or NULL if there is none. */
static inline PyObject *block_next(const RecordBlock *self)
{
    bool exists = self->records != NULL && self->index >= 0 && self->index < PyList_GET_SIZE(self->records);
    return exists ? PyList_GET_ITEM(self->records, self->index) : NULL;
}

#endif
