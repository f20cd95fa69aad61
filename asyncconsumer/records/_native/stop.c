/* The StopIteration with which `await` gets a record.

   Up to Python 3.11 `await` calls am_send, which returns the record. From Python 3.12 on it calls tp_iternext, so
   each record is the value of a StopIteration. Creating one takes more time than decoding the record, so a
   deallocated one is reused. */

#include "await.h"

#if PY_VERSION_HEX < 0x030C0000

void raise_stop_iteration(PyObject *value)
{
    PyErr_SetObject(PyExc_StopIteration, value);
    Py_DECREF(value);
}

int stop_prepare(void) { return 0; }

#else

static PyTypeObject Stop_Type;
static PyStopIterationObject *spare; /* without a value */

void raise_stop_iteration(PyObject *value)
{
    PyStopIterationObject *stop = spare;
    spare = NULL;
    if (stop == NULL)
        stop = (PyStopIterationObject *)PyObject_CallNoArgs((PyObject *)&Stop_Type);
    if (stop == NULL) {
        Py_DECREF(value);
        return;
    }
    Py_XSETREF(stop->value, value);
    PyErr_SetRaisedException((PyObject *)stop);
}

/* One that Python code has caught may refer to frames and other exceptions. */
static bool is_pristine(const PyStopIterationObject *self)
{
    return self->traceback == NULL && self->context == NULL && self->cause == NULL && self->dict == NULL
           && self->notes == NULL;
}

static void stop_dealloc(PyStopIterationObject *self)
{
    if (spare != NULL || !Py_IS_TYPE(self, &Stop_Type) || !is_pristine(self)) {
        ((PyTypeObject *)PyExc_StopIteration)->tp_dealloc((PyObject *)self);
        return;
    }
    PyObject *value = self->value;
    self->value = NULL;
    /* With a reference count of 1, because it is still tracked by the garbage collector. */
    spare = (PyStopIterationObject *)PyObject_Init((PyObject *)self, &Stop_Type);
    Py_XDECREF(value);
}

static PyTypeObject Stop_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncconsumer.records._records._Stop",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_dealloc = (destructor)stop_dealloc,
};

int stop_prepare(void)
{
    Stop_Type.tp_base = (PyTypeObject *)PyExc_StopIteration;
    return PyType_Ready(&Stop_Type);
}

#endif
