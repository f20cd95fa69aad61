/* The module `_records`: the compiled twin of asyncconsumer.records._pure, with the same names, results and errors. */

#include "native.h"

#include "await.h"
#include "builder.h"
#include "crc32c.h"
#include "memory.h"
#include "message.h"

static PyObject *checksum(PyObject *data, uint32_t (*function)(const uint8_t *, size_t))
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t crc = function(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *crc32c(PyObject *module, PyObject *data) { return checksum(data, crc32c_of); }

static PyObject *crc32c_without_folding(PyObject *module, PyObject *data) { return checksum(data, crc32c_unfolded); }

static PyObject *crc32c_by_tables(PyObject *module, PyObject *data) { return checksum(data, crc32c_portable); }

static PyMethodDef methods[] = {
    {"crc32c", crc32c, METH_O,
     "crc32c(data, /)\n--\n\nReturn the CRC-32C (Castagnoli) of a bytes-like object."},
    {"fetch_answer", (PyCFunction)(void (*)(void))fetch_answer, METH_VARARGS | METH_KEYWORDS,
     "fetch_answer(frame, version)\n--\n\n"
     "Parse the body of a fetch response of versions 4 to 17, after the response header.\n\n"
     "The records are not copied: `start` and `end` of each partition are positions in the frame.\n"
     "Raise `MalformedResponse`, with the position, for bytes that do not follow the protocol."},
    {"murmur2", murmur2, METH_O,
     "murmur2(data, /)\n--\n\nReturn the unsigned 32-bit hash by which Kafka's clients choose the partition of a key."},
    {"record_set_end", record_set_end, METH_VARARGS,
     "record_set_end(data, otherwise, /)\n--\n\n"
     "Return the offset after the last complete record batch, and the leader epoch of that batch.\n\n"
     "Without a complete batch, return `otherwise` and -1."},
    {"room_for", room_for, METH_O,
     "room_for(size, /)\n--\n\nReturn a writable buffer of `size` bytes with undefined content."},
    {"_crc32c_unfolded", crc32c_without_folding, METH_O,
     "_crc32c_unfolded(data, /)\n--\n\nReturn the CRC-32C as on a processor that cannot fold. Tests use this."},
    {"_crc32c_portable", crc32c_by_tables, METH_O,
     "_crc32c_portable(data, /)\n--\n\n"
     "Return the CRC-32C as on a processor without a CRC instruction. Tests use this."},
    {NULL, NULL, 0, NULL},
};

/* Types, error classes and spare memory are static, and subinterpreters would share them. An `except CorruptRecords`
   there would not catch the error, because its class belongs to another interpreter. */
static int refuse_subinterpreters(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main())
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "the compiled record decoder works only in the main interpreter, and this is a subinterpreter; "
                    "with mod_wsgi set WSGIApplicationGroup %{GLOBAL}");
    return -1;
}

/* The code of this module takes no locks. A free-threaded Python enables the GIL for it, unless the user has disabled
   the GIL. */
static int refuse_without_gil(void)
{
#ifdef Py_GIL_DISABLED
    PyObject *is_enabled = PySys_GetObject("_is_gil_enabled"); /* borrowed */
    PyObject *enabled = is_enabled ? PyObject_CallNoArgs(is_enabled) : NULL;
    int refused = enabled == NULL ? -1 : PyObject_Not(enabled);
    Py_XDECREF(enabled);
    if (refused == 1)
        PyErr_SetString(PyExc_ImportError, "the compiled record decoder needs the global interpreter lock, and it "
                                           "is switched off; start Python with PYTHON_GIL=1");
    return refused ? -1 : 0;
#else
    return 0;
#endif
}

static int execute(PyObject *module)
{
    if (refuse_subinterpreters() < 0 || refuse_without_gil() < 0)
        return -1;
    checksums_prepare();
    if (memory_prepare() < 0 || stop_prepare() < 0 || walk_prepare() < 0 || body_prepare() < 0
        || record_prepare(module) < 0 || records_prepare(module) < 0 || message_prepare(module) < 0
        || builder_prepare(module) < 0
        || stream_prepare(module) < 0 || loop_prepare(module) < 0 || fetch_response_prepare(module) < 0
        || encoder_prepare(module) < 0 || call_prepare(module) < 0 || block_prepare(module) < 0
        || run_prepare(module) < 0)
        return -1;
    return 0;
}

/* Multi-phase initialization. With a single phase, Python would copy the module of the first interpreter to the
   others without running these checks. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_records", .m_doc = "The compiled record decoder and encoder.", .m_size = 0,
    .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__records(void) { return PyModuleDef_Init(&definition); }
