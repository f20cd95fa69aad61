/* The parts of a record, bytes and ints, created or reused from a deallocated record.

   An `async for` loop drops one record for each that it gets, and a reader of lists drops a whole list. Overwriting
   a part that has no other reference saves an allocation and a deallocation (half of the time of a record,
   measured). */

#ifndef ASYNCCONSUMER_PARTS_H
#define ASYNCCONSUMER_PARTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The number of deallocated objects of each type that are kept with their parts. Most of them keep only small parts,
   so that each type takes up to 5 MiB. The first few keep large parts as well. A loop that keeps no record uses
   these in turn. */
enum { MAX_SPARE = 8192, SPARE_WITH_MEDIUM_PARTS = 512, SPARE_WITH_LARGE_PARTS = 4 };
enum { MAX_LARGE_PART = 16 << 10, MAX_MEDIUM_PART = 512, MAX_SMALL_PART = 128 };

enum { MAX_SHARED_INT = 1024 }; /* upper bound of the ints that CPython shares */

/* Whether the caller has the only reference. Without the GIL, a reference count does not show that. */
static inline bool is_only_reference(PyObject *part)
{
#ifdef Py_GIL_DISABLED
    return false;
#else
    return part != NULL && Py_REFCNT(part) == 1;
#endif
}

/* Returns bytes from a buffer, or None for NULL. Steals `old`, which is bytes or NULL. */
static inline PyObject *bytes_from(PyObject *old, const uint8_t *data, int32_t length)
{
    if (data != NULL && is_only_reference(old) && PyBytes_GET_SIZE(old) == length) {
        memcpy(PyBytes_AS_STRING(old), data, (size_t)length);
        _Py_COMP_DIAG_PUSH
        _Py_COMP_DIAG_IGNORE_DEPR_DECLS
        ((PyBytesObject *)old)->ob_shash = -1; /* -1: not computed yet */
        _Py_COMP_DIAG_POP
        return old;
    }
    Py_XDECREF(old);
    return data == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)data, length);
}

/* Returns the digits of a positive int with `count` digits, or NULL for any other int. */
static inline digit *digits_of(PyObject *number, Py_ssize_t count)
{
#if PY_VERSION_HEX < 0x030C0000
    return Py_SIZE(number) == count ? ((PyLongObject *)number)->ob_digit : NULL;
#else
    enum { FLAG_BITS = 3 }; /* all flags of a positive number are 0 */
    _PyLongValue *value = &((PyLongObject *)number)->long_value;
    return value->lv_tag == (uintptr_t)count << FLAG_BITS ? value->ob_digit : NULL;
#endif
}

/* Steals `old`, which is an int or NULL. */
static inline PyObject *int_from(PyObject *old, int64_t value)
{
#if PyLong_SHIFT == 30
    if (is_only_reference(old) && value > MAX_SHARED_INT && value < INT64_C(1) << 60) {
        Py_ssize_t count = value >> PyLong_SHIFT ? 2 : 1;
        digit *digits = digits_of(old, count);
        if (digits != NULL) {
            digits[0] = (digit)(value & PyLong_MASK);
            if (count == 2)
                digits[1] = (digit)(value >> PyLong_SHIFT);
            return old;
        }
    }
#endif
    Py_XDECREF(old);
    return PyLong_FromLongLong(value);
}

/* Returns `part` if a later record may reuse it, or NULL. Steals `part`. `spare` is the number of objects kept so
   far. */
static inline PyObject *part_to_reuse(PyObject *part, int spare)
{
    Py_ssize_t largest = spare < SPARE_WITH_LARGE_PARTS    ? MAX_LARGE_PART
                         : spare < SPARE_WITH_MEDIUM_PARTS ? MAX_MEDIUM_PART
                                                           : MAX_SMALL_PART;
    if (is_only_reference(part) && PyBytes_CheckExact(part) && PyBytes_GET_SIZE(part) <= largest)
        return part;
    Py_XDECREF(part);
    return NULL;
}

#endif
