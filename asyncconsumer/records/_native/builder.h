/* MessageBuilder: creates messages from records. */

#ifndef ASYNCCONSUMER_BUILDER_H
#define ASYNCCONSUMER_BUILDER_H

#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *key, *value;      /* functions of bytes or of a record, or NULL to keep the bytes */
    bool key_takes_record, value_takes_record;
    PyObject *commit;           /* the function that commits a message, or NULL */
    PyObject *fail;             /* the function that raises the error for a failed deserializer, or NULL */
    PyObject *interceptors;     /* a tuple of functions of a record */
    PyTypeObject *message_type; /* Message or a subclass */
    PyObject *intercept_failed; /* called with the error of an interceptor, and the record */
} MessageBuilder;

extern PyTypeObject MessageBuilder_Type;

enum Built { BUILD_ERROR = -1, BUILD_AWAITS, BUILD_DONE };

/* Returns the record after all interceptors. Steals `record`. NULL with an exception. */
PyObject *builder_intercept(MessageBuilder *self, PyObject *record);

/* BUILD_DONE: *item is the message. BUILD_AWAITS: *item is an awaitable that returns the message. */
enum Built builder_build(MessageBuilder *self, PyObject *record, PyObject **item);

/* The same for a record without an object. Except for BUILD_DONE, *record is then the Record, or NULL if it could
   not be created. */
enum Built builder_build_at(MessageBuilder *self, const Records *records, const ParsedRecord *parsed, PyObject **record,
                            PyObject **item);

int builder_prepare(PyObject *module);

#endif
