/* The parts of a record: bytes and ints, made anew or of those of a record that is gone.

   A loop over records lets one go for each that it gets, and a reader of lists a whole list. What nobody else holds any
   more is written over, which saves an allocation and a release each (measured: half of the time of a record). */

#ifndef ASYNCCONSUMER_PARTS_H
#define ASYNCCONSUMER_PARTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Objects of each kind that are kept, with their parts. The many that a list leaves keep small parts only, so that each
   kind takes up to 5 MiB. A loop that keeps no record uses the first ones in turn, so these keep large parts, too. */
enum { MAX_SPARE = 8192, SPARE_WITH_MEDIUM_PARTS = 512, SPARE_WITH_LARGE_PARTS = 4 };
enum { MAX_LARGE_PART = 16 << 10, MAX_MEDIUM_PART = 512, MAX_SMALL_PART = 128 };

enum { MAX_SHARED_INT = 1024 };

/* Whether we hold the only reference. Without the lock that guards them, counts tell nothing. */
static inline bool is_only_reference(PyObject *part)
{
#ifdef Py_GIL_DISABLED
    return false;
#else
    return part != NULL && Py_REFCNT(part) == 1;
#endif
}

/* The bytes at a place, or None; steals `old`, which is NULL or bytes. */
static inline PyObject *bytes_from(PyObject *old, const uint8_t *at, int32_t length)
{
    if (at != NULL && is_only_reference(old) && PyBytes_GET_SIZE(old) == length) {
        memcpy(PyBytes_AS_STRING(old), at, (size_t)length);
        _Py_COMP_DIAG_PUSH
        _Py_COMP_DIAG_IGNORE_DEPR_DECLS
        ((PyBytesObject *)old)->ob_shash = -1; /* not known yet */
        _Py_COMP_DIAG_POP
        return old;
    }
    Py_XDECREF(old);
    return at == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)at, length);
}

/* The digits of an int that has `count` of them and is positive, or NULL. */
static inline digit *digits_of(PyObject *number, Py_ssize_t count)
{
#if PY_VERSION_HEX < 0x030C0000
    return Py_SIZE(number) == count ? ((PyLongObject *)number)->ob_digit : NULL;
#else
    enum { FLAG_BITS = 3 }; /* all are 0 for a positive number */
    _PyLongValue *value = &((PyLongObject *)number)->long_value;
    return value->lv_tag == (uintptr_t)count << FLAG_BITS ? value->ob_digit : NULL;
#endif
}

/* Steals `old`, which is NULL or an int. */
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

/* Bytes that a later record may be made of, or NULL; steals them. `spare` objects are kept already. */
static inline PyObject *part_to_reuse(PyObject *part, int spare)
{
    Py_ssize_t largest = spare < SPARE_WITH_LARGE_PARTS ? MAX_LARGE_PART : spare < SPARE_WITH_MEDIUM_PARTS ? MAX_MEDIUM_PART : MAX_SMALL_PART;
    if (is_only_reference(part) && PyBytes_CheckExact(part) && PyBytes_GET_SIZE(part) <= largest)
        return part;
    Py_XDECREF(part);
    return NULL;
}

#endif
