/* The compiled twin of records.py: same names, same answers, same errors. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

static uint32_t crc_table[256];

static void fill_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
        crc_table[byte] = crc;
    }
}

static uint32_t crc32c_of(const uint8_t *at, Py_ssize_t length)
{
    uint32_t crc = 0xFFFFFFFFu;
    while (length-- > 0)
        crc = (crc >> 8) ^ crc_table[(crc ^ *at++) & 0xFF];
    return crc ^ 0xFFFFFFFFu;
}

static PyObject *py_crc32c(PyObject *module, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t crc = crc32c_of(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef methods[] = {
    {"crc32c", py_crc32c, METH_O, "crc32c(data, /)\n--\n\nCRC-32C (Castagnoli) of a bytes-like object."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_records", "Record decoder, compiled.", -1, methods,
};

PyMODINIT_FUNC PyInit__records(void)
{
    fill_crc_table();
    return PyModule_Create(&module);
}
