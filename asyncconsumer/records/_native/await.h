/* await.c, stop.c: the parts of awaitables, as `await` drives them. */

#ifndef ASYNCCONSUMER_AWAIT_H
#define ASYNCCONSUMER_AWAIT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Whether it was made by a generator function with `types.coroutine`. */
bool is_generator_coroutine(PyObject *object);

/* What `await` would iterate over. Steals `awaitable`; NULL with an exception. */
PyObject *await_iterator(PyObject *awaitable);

/* The answer of a method or of tp_iternext for an outcome of am_send. Steals `result`. */
PyObject *method_result(PySendResult outcome, PyObject *result);

/* The value of the StopIteration that is set; NULL if another exception is set. */
PyObject *stop_iteration_value(void);

/* Sets the exception of the arguments of throw(). */
void raise_thrown(PyObject *args);

/* Raise a StopIteration with a value, which is stolen. */
void raise_stop_iteration(PyObject *value);
int stop_prepare(void);

#endif
