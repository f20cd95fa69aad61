/* Message: a record with a deserialized key and value. */

#ifndef ASYNCCONSUMER_MESSAGE_H
#define ASYNCCONSUMER_MESSAGE_H

#include "native.h"

/* Steals `key` and `value`, also if it fails. `commit` may be NULL. */
PyObject *message_from(PyObject *record, PyObject *key, PyObject *value, PyObject *commit);

int message_prepare(PyObject *module);

#endif
