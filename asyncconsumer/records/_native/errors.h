/* Exceptions as single objects, as in Python 3.12. */

#ifndef ASYNCCONSUMER_ERRORS_H
#define ASYNCCONSUMER_ERRORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Clears the exception that is set and returns it, or returns NULL if there is none. */
static inline PyObject *error_fetch(void)
{
#if PY_VERSION_HEX < 0x030C0000
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (type == NULL)
        return NULL;
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
#else
    return PyErr_GetRaisedException();
#endif
}

/* Sets an exception, which is stolen. NULL clears the exception that is set. */
static inline void error_raise(PyObject *error)
{
#if PY_VERSION_HEX < 0x030C0000
    PyErr_Restore(error ? Py_NewRef(Py_TYPE(error)) : NULL, error, error ? PyException_GetTraceback(error) : NULL);
#else
    PyErr_SetRaisedException(error);
#endif
}

/* Ignores the result of a call, or its exception. */
static inline void ignore_result(PyObject *result)
{
    if (result == NULL)
        PyErr_Clear();
    Py_XDECREF(result);
}

#endif
