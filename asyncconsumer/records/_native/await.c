/* The protocol by which `await` drives awaitables. */

#include "await.h"

#include "errors.h"

bool is_generator_coroutine(PyObject *object)
{
    if (!PyGen_CheckExact(object))
        return false;
#if PY_VERSION_HEX < 0x030C0000
    return (((PyGenObject *)object)->gi_code->co_flags & CO_ITERABLE_COROUTINE) != 0;
#else
    PyCodeObject *code = PyGen_GetCode((PyGenObject *)object);
    bool is_coroutine = (code->co_flags & CO_ITERABLE_COROUTINE) != 0;
    Py_DECREF(code);
    return is_coroutine;
#endif
}

PyObject *await_iterator(PyObject *awaitable)
{
    PyAsyncMethods *methods = Py_TYPE(awaitable)->tp_as_async;
    if (PyCoro_CheckExact(awaitable) || is_generator_coroutine(awaitable))
        return awaitable;
    PyObject *iterator = NULL;
    if (methods != NULL && methods->am_await != NULL)
        iterator = methods->am_await(awaitable);
    else
        PyErr_Format(PyExc_TypeError, "an awaitable is needed, not %.100s", Py_TYPE(awaitable)->tp_name);
    Py_DECREF(awaitable);
    return iterator;
}

PyObject *method_result(PySendResult outcome, PyObject *result)
{
    if (outcome == PYGEN_RETURN) {
        raise_stop_iteration(result);
        return NULL;
    }
    return outcome == PYGEN_NEXT ? result : NULL;
}

PyObject *stop_iteration_value(void)
{
    if (!PyErr_ExceptionMatches(PyExc_StopIteration))
        return NULL;
    PyObject *error = error_fetch();
    PyObject *value = PyObject_GetAttrString(error, "value");
    Py_DECREF(error);
    return value;
}

void raise_thrown(PyObject *args)
{
    PyObject *type, *error = NULL, *traceback = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &error, &traceback))
        return;
    if (PyExceptionInstance_Check(type))
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    else if (PyExceptionClass_Check(type))
        PyErr_SetObject(type, error ? error : Py_None);
    else
        PyErr_SetString(PyExc_TypeError, "exceptions must be classes or instances deriving from BaseException");
}
