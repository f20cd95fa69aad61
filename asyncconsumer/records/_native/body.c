/* Compressed bodies. asyncconsumer.records.compression decompresses them, within its limits.

   A decompressed body is a cache entry. `bodies` (asyncconsumer.buffer.body_cache) may evict it between two records.
   The next record then decompresses the body again. If the budget has no room for all of it, a window of complete
   records is kept. */

#include "memory.h"
#include "native.h"

static PyObject *decompress_function, *bad_compression, *too_large; /* of asyncconsumer.records.compression */

enum { MAX_SPARE_SLAB = 4 << 20 };

int body_prepare(void)
{
    PyObject *compression = PyImport_ImportModule("asyncconsumer.records.compression");
    if (compression != NULL) {
        decompress_function = PyObject_GetAttrString(compression, "inflate");
        bad_compression = PyObject_GetAttrString(compression, "BadCompression");
        too_large = PyObject_GetAttrString(compression, "TooLarge");
        Py_DECREF(compression);
    }
    return decompress_function && bad_compression && too_large ? 0 : -1;
}

/* --- the charge to the budget ------------------------------------------------------------------------------ */

/* Releases the charge. Errors of the cache are only reported, because they must not stop the reader. */
static void release_charge(Records *self)
{
    if (!self->is_charged || self->bodies == NULL)
        return;
    self->is_charged = false;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *result = PyObject_CallMethod(self->bodies, "release", "O", (PyObject *)self);
    if (result == NULL)
        PyErr_WriteUnraisable(self->bodies);
    Py_XDECREF(result);
    PyErr_Restore(type, error, traceback);
}

void body_drop(Records *self)
{
    self->rest_evicted = false;
    self->trailing_bytes = 0;
    self->compressed.data = NULL;
    Py_CLEAR(self->body_slab);
    release_charge(self);
}

/* Charges `size` bytes of the current body. Returns how many of them may stay in memory, or -1 with an exception.
   The cache may evict other bodies. */
static int64_t charge(Records *self, int64_t size, bool again)
{
    if (self->bodies == NULL)
        return size;
    self->is_charged = true;
    PyObject *result = PyObject_CallMethod(self->bodies, "hold", "OLO", (PyObject *)self, (long long)size,
                                           again ? Py_True : Py_False);
    int64_t kept_size = result ? PyLong_AsLongLong(result) : -1;
    Py_XDECREF(result);
    return kept_size < 0 && PyErr_Occurred() ? -1 : kept_size;
}

static void evict(Records *self)
{
    if (self->is_decompressed && self->compressed.data != NULL) {
        if (self->remaining > 0 && self->next_record != NULL) {
            self->resume_position = self->body_start_position + (self->next_record - self->body_start);
            self->rest_evicted = true;
        }
        else if (self->remaining == 0)
            self->trailing_bytes += self->body_end - self->next_record;
        self->next_record = self->body_end = self->body_start = NULL;
    }
    Py_CLEAR(self->body_slab);
}

bool body_evict(Records *self)
{
    if (self->busy || self->shared_bodies != NULL || self->shared_body != NULL || self->body_slab == NULL)
        return false;
    evict(self);
    return true;
}

/* --- decompressing ------------------------------------------------------------------------------------------ */

/* Returns a buffer of `size` bytes, for compression.inflate(). Reuses the current buffer if it is large enough. */
static PyObject *room_of(Records *self, PyObject *size)
{
    Py_ssize_t capacity = PyLong_AsSsize_t(size);
    if (capacity == -1 && PyErr_Occurred())
        return NULL;
    if (self->body_slab == NULL || ((Slab *)self->body_slab)->memory.used < capacity) {
        Py_CLEAR(self->body_slab);
        self->body_slab = room_for(NULL, size);
    }
    return Py_XNewRef(self->body_slab);
}

static PyMethodDef room_method = {"room_of", (PyCFunction)room_of, METH_O, NULL};

/* Copies the rest of the body to an object of its own, which Arrow arrays may keep alive. */
int body_share(Records *self)
{
    Buffer copy = {NULL, 0, 0};
    int64_t size = self->body_end - self->next_record;
    PyObject *body = NULL;
    if (size == 0 || buffer_append(&copy, self->next_record, size) == 0)
        body = buffer_finish(&copy);
    buffer_free(&copy);
    if (body == NULL)
        return -1;
    self->body_start_position += self->next_record - self->body_start;
    Py_XSETREF(self->shared_body, body);
    self->next_record = self->body_start = (const uint8_t *)((Slab *)body)->memory.start;
    self->body_end = self->next_record + size;
    Py_CLEAR(self->body_slab);
    return PyList_Append(self->shared_bodies, body);
}

static int translate_error(Records *self)
{
    if (PyErr_ExceptionMatches(too_large)) {
        PyErr_Clear();
        self->paused = PAUSED_FOR_BODY;
        return -1;
    }
    if (!PyErr_ExceptionMatches(bad_compression))
        return -1;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *reason = error ? PyObject_Str(error) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    if (reason != NULL) {
        walk_corrupt_text(self, self->compressed.resume_offset, reason);
        Py_DECREF(reason);
    }
    return -1;
}

/* Calls compression.inflate(), and first lets the cache evict other bodies. Returns the size, or NULL with an
   exception.

   For a reader on an event loop, `at_once` refuses a body that takes long. The reader then waits until prepare() has
   decompressed it. */
static PyObject *call_decompress(Records *self, PyObject *source)
{
    if (self->bodies != NULL) {
        PyObject *result = PyObject_CallMethod(self->bodies, "make_room", "O", (PyObject *)self);
        Py_XDECREF(result);
        if (result == NULL)
            return NULL;
    }
    PyObject *room_function = PyCFunction_New(&room_method, (PyObject *)self);
    if (room_function == NULL)
        return NULL;
    bool at_once = self->cooperative && !self->preparing && self->bodies != NULL;
    PyObject *used = PyObject_CallFunction(decompress_function, "iOOLO", self->compressed.codec, source, room_function,
                                           (long long)self->compressed.max_size, at_once ? Py_True : Py_False);
    Py_DECREF(room_function);
    return used;
}

/* Decompresses the whole body. This runs Python code, and possibly other threads: `busy` is set. */
static int decompress(Records *self)
{
    if (self->body_slab != NULL && ((Slab *)self->body_slab)->memory.used > MAX_SPARE_SLAB)
        Py_CLEAR(self->body_slab); /* the next body is probably smaller */
    PyObject *source = PyMemoryView_FromMemory((char *)self->compressed.data, self->compressed.length, PyBUF_READ);
    if (source == NULL)
        return -1;
    self->next_record = self->body_end = self->body_start = NULL;
    PyObject *used = call_decompress(self, source);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    Py_XDECREF(traceback); /* Its frames would keep slices of `source` for longer than this object's buffer exists. */
    PyObject *result = PyObject_CallMethod(source, "release", NULL);
    Py_XDECREF(result);
    Py_DECREF(source);
    PyErr_Restore(type, error, NULL);
    if (used == NULL)
        return translate_error(self);
    Py_ssize_t size = PyLong_AsSsize_t(used);
    Py_DECREF(used);
    if (size < 0 || self->body_slab == NULL || size > ((Slab *)self->body_slab)->memory.used) {
        PyErr_SetString(PyExc_SystemError, "inflate() returned a size larger than its buffer");
        return -1;
    }
    self->is_decompressed = true;
    self->decompressed_bytes += size;
    self->worked += size;
    self->next_record = self->body_start = (const uint8_t *)((Slab *)self->body_slab)->memory.start;
    self->body_end = self->next_record + size;
    self->body_start_position = 0;
    return 0;
}

/* Decompresses a body, which becomes the current body. */
int body_decompress(Records *self, const CompressedBody *compressed)
{
    self->compressed = *compressed;
    self->rest_evicted = false;
    self->trailing_bytes = 0;
    if (decompress(self) < 0)
        return -1;
    self->compressed.size = self->body_end - self->next_record;
    if (charge(self, self->compressed.size, false) < 0)
        return -1;
    return self->shared_bodies != NULL ? body_share(self) : 0;
}

/* --- evicted bodies ---------------------------------------------------------------------------------------- */

/* Returns the position after the record at `position`, or NULL if its length is not valid. */
static const uint8_t *record_after(const Records *self, const uint8_t *position)
{
    Reader r = {position, self->body_end};
    int64_t length;
    if (self->magic != 2)
        return legacy_message_after(self, position);
    if (read_varint(&r, &length) != NULL || length < 0 || length > bytes_left(&r))
        return NULL;
    return r.position + length;
}

/* Keeps complete records of about `max_size` bytes, from the next record on. Frees the rest of the body. */
static int keep_window(Records *self, int64_t max_size)
{
    const uint8_t *end = self->next_record, *next = end;
    int64_t count = 0, body_size = self->body_end - self->body_start;
    for (; count < self->remaining && next != NULL && end - self->next_record < max_size; count++) {
        next = record_after(self, end);
        end = next ? next : end;
    }
    bool goes_to_end = count == self->remaining;
    int64_t size = (goes_to_end ? self->body_end : end) - self->next_record;
    if (next == NULL || size > body_size / 2) /* Keep all if a record is corrupt, or if most of the body is kept. */
        return charge(self, body_size, false) < 0 ? -1 : 0;
    Buffer copy = {NULL, 0, 0};
    PyObject *window = buffer_append(&copy, self->next_record, size) == 0 ? buffer_finish(&copy) : NULL;
    buffer_free(&copy);
    if (window == NULL)
        return -1;
    self->body_start_position = self->resume_position;
    Py_SETREF(self->body_slab, window);
    self->next_record = self->body_start = (const uint8_t *)((Slab *)window)->memory.start;
    self->body_end = self->next_record + size;
    self->rest_evicted = !goes_to_end;
    self->resume_position += size;
    return charge(self, size, false) < 0 ? -1 : 0;
}

/* Decompresses the current body again, and continues at the same record. */
int body_decompress_again(Records *self)
{
    int64_t position = self->resume_position, previous_size = self->compressed.size;
    if (self->shared_body != NULL)
        Py_CLEAR(self->shared_body);
    if (decompress(self) < 0)
        return -1;
    int64_t size = self->body_end - self->body_start;
    if (size != previous_size || position > size)
        return walk_corrupt(self, self->compressed.resume_offset, "a body of %lld bytes that had %lld before",
                            (long long)size, (long long)previous_size);
    self->next_record += position;
    self->rest_evicted = false;
    int64_t kept_size = charge(self, size, true);
    if (kept_size < 0) {
        evict(self);
        return -1;
    }
    if (self->shared_bodies != NULL)
        return body_share(self);
    return kept_size < size ? keep_window(self, kept_size) : 0;
}
