/* Message: a record with a deserialized key and value. */

#ifndef ASYNCCONSUMER_MESSAGE_H
#define ASYNCCONSUMER_MESSAGE_H

#include "native.h"

extern PyTypeObject Message_Type;

/* Makes a message of `type`, which is Message or a subclass; its `__init__` is not called.
   Steals `key` and `value`, also if it fails. `commit` may be NULL. */
PyObject *message_from(PyTypeObject *type, PyObject *record, PyObject *key, PyObject *value, PyObject *commit);

int message_prepare(PyObject *module);

#endif
