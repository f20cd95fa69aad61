/* await.c, stop.c: the protocol by which `await` drives awaitables. */

#ifndef ASYNCCONSUMER_AWAIT_H
#define ASYNCCONSUMER_AWAIT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Whether a generator function with `types.coroutine` created the object. */
bool is_generator_coroutine(PyObject *object);

/* Returns the iterator that `await` would use. Steals `awaitable`. NULL with an exception. */
PyObject *await_iterator(PyObject *awaitable);

/* Converts the outcome of am_send to the result of a method or of tp_iternext. Steals `result`. */
PyObject *method_result(PySendResult outcome, PyObject *result);

/* Returns the value of the StopIteration that is set. Returns NULL if another exception is set. */
PyObject *stop_iteration_value(void);

/* Sets the exception that the arguments of throw() name. */
void raise_thrown(PyObject *args);

/* Raises a StopIteration with a value, which is stolen. */
void raise_stop_iteration(PyObject *value);
int stop_prepare(void);

#endif
