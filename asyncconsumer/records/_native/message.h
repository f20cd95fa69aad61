/* Message: a record with a deserialized key and value. */

#ifndef ASYNCCONSUMER_MESSAGE_H
#define ASYNCCONSUMER_MESSAGE_H

#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *topic, *partition, *offset, *timestamp, *headers; /* as in the record */
    PyObject *key, *value;             /* deserialized; NULL until the message is complete */
    PyObject *key_bytes, *value_bytes; /* the bytes of the record, or None */
    PyObject *record;                  /* NULL until it is needed, because most messages do not need it */
    PyObject *committing;              /* the function that commits this message, or NULL */
    signed char timestamp_type;
} Message;

extern PyTypeObject Message_Type;

/* Create messages of `type`, which is Message or a subclass. They are complete after message_complete(). The
   `__init__` of a subclass is not called. */
Message *message_from_parsed(PyTypeObject *type, PyObject *topic, PyObject *partition, const ParsedRecord *parsed);
Message *message_from_record(PyTypeObject *type, PyObject *record);

/* Steals `key` and `value`. `commit` may be NULL. */
void message_complete(Message *self, PyObject *key, PyObject *value, PyObject *commit);

/* Returns the record as a borrowed reference. NULL with an exception. */
PyObject *message_record(Message *self);

int message_prepare(PyObject *module);

#endif
