/* Compressed bodies, by way of compression.inflate, which knows the codecs and their limits.

   A decompressed body is a cache: `bodies` (asyncconsumer.buffer.body_cache) may have it evicted between two
   records. Then the body is decompressed again at the next record. What was evicted once comes back as a
   window of whole records if there is not room for all of it. */

#include "memory.h"
#include "native.h"

static PyObject *inflate, *bad_compression, *too_large; /* of asyncconsumer.records.compression */

enum { LARGEST_SPARE_ROOM = 4 << 20 };

int body_prepare(void)
{
    PyObject *compression = PyImport_ImportModule("asyncconsumer.records.compression");
    if (compression != NULL) {
        inflate = PyObject_GetAttrString(compression, "inflate");
        bad_compression = PyObject_GetAttrString(compression, "BadCompression");
        too_large = PyObject_GetAttrString(compression, "TooLarge");
        Py_DECREF(compression);
    }
    return inflate && bad_compression && too_large ? 0 : -1;
}

/* --- what the budget is charged ---------------------------------------------------------------------------- */

/* The charge ends. Errors of the cache are not the reader's: they are only reported. */
static void release_charge(Records *self)
{
    if (!self->is_charged || self->bodies == NULL)
        return;
    self->is_charged = false;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *done = PyObject_CallMethod(self->bodies, "release", "O", (PyObject *)self);
    if (done == NULL)
        PyErr_WriteUnraisable(self->bodies);
    Py_XDECREF(done);
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

/* How many bytes of the `size` in hand may stay in memory, or -1. Others may be evicted for it. */
static int64_t charge(Records *self, int64_t size, bool again)
{
    if (self->bodies == NULL)
        return size;
    self->is_charged = true;
    PyObject *told = PyObject_CallMethod(self->bodies, "hold", "OLO", (PyObject *)self, (long long)size,
                                         again ? Py_True : Py_False);
    int64_t kept = told ? PyLong_AsLongLong(told) : -1;
    Py_XDECREF(told);
    return kept < 0 && PyErr_Occurred() ? -1 : kept;
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

/* For inflate(): room for so many bytes. What an earlier try or a smaller body had is used or freed. */
static PyObject *room_of(Records *self, PyObject *size)
{
    Py_ssize_t wanted = PyLong_AsSsize_t(size);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    if (self->body_slab == NULL || ((Slab *)self->body_slab)->memory.used < wanted) {
        Py_CLEAR(self->body_slab);
        self->body_slab = room_for(NULL, size);
    }
    return Py_XNewRef(self->body_slab);
}

static PyMethodDef room_method = {"room_of", (PyCFunction)room_of, METH_O, NULL};

/* Moves what is left of the body to memory of its own, that others may keep. */
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

/* compression.inflate(), with room made by the cache before; returns the number of bytes or NULL.

   Who reads on an event loop takes at once what is quick. For the rest it waits, by way of the cache. */
static PyObject *call_inflate(Records *self, PyObject *source)
{
    if (self->bodies != NULL) {
        PyObject *done = PyObject_CallMethod(self->bodies, "make_room", "O", (PyObject *)self);
        Py_XDECREF(done);
        if (done == NULL)
            return NULL;
    }
    PyObject *room = PyCFunction_New(&room_method, (PyObject *)self);
    if (room == NULL)
        return NULL;
    bool at_once = self->cooperative && !self->preparing && self->bodies != NULL;
    PyObject *used = PyObject_CallFunction(inflate, "iOOLO", self->compressed.codec, source, room,
                                           (long long)self->compressed.max_size, at_once ? Py_True : Py_False);
    Py_DECREF(room);
    return used;
}

/* Fills the room with the whole body. Python runs here, and other threads may: `busy` is set. */
static int decompress(Records *self)
{
    if (self->body_slab != NULL && ((Slab *)self->body_slab)->memory.used > LARGEST_SPARE_ROOM)
        Py_CLEAR(self->body_slab); /* the next body is probably not as large */
    PyObject *source = PyMemoryView_FromMemory((char *)self->compressed.data, self->compressed.length, PyBUF_READ);
    if (source == NULL)
        return -1;
    self->next_record = self->body_end = self->body_start = NULL;
    PyObject *used = call_inflate(self, source);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    Py_XDECREF(traceback); /* its frames would keep slices of `source` beyond our buffer's life */
    PyObject *released = PyObject_CallMethod(source, "release", NULL);
    Py_XDECREF(released);
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

/* The decompressed bytes become the body in hand. */
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

/* --- bodies that were evicted ----------------------------------------------------------------------------- */

/* Where the record behind the one at `at` begins; NULL if its length makes no sense. */
static const uint8_t *record_after(const Records *self, const uint8_t *at)
{
    Reader r = {at, self->body_end};
    int64_t length;
    if (self->magic != 2)
        return legacy_message_after(self, at);
    if (read_varint(&r, &length) != NULL || length < 0 || length > bytes_left(&r))
        return NULL;
    return r.position + length;
}

/* Keeps about `most` bytes from the record in hand on, in whole records, and frees the rest. */
static int keep_window(Records *self, int64_t most)
{
    const uint8_t *end = self->next_record, *next = end;
    int64_t count = 0, whole = self->body_end - self->body_start;
    for (; count < self->remaining && next != NULL && end - self->next_record < most; count++) {
        next = record_after(self, end);
        end = next ? next : end;
    }
    bool to_the_end = count == self->remaining;
    int64_t size = (to_the_end ? self->body_end : end) - self->next_record;
    if (next == NULL || size > whole / 2) /* what is damaged, or most of it, is kept whole */
        return charge(self, whole, false) < 0 ? -1 : 0;
    Buffer copy = {NULL, 0, 0};
    PyObject *window = buffer_append(&copy, self->next_record, size) == 0 ? buffer_finish(&copy) : NULL;
    buffer_free(&copy);
    if (window == NULL)
        return -1;
    self->body_start_position = self->resume_position;
    Py_SETREF(self->body_slab, window);
    self->next_record = self->body_start = (const uint8_t *)((Slab *)window)->memory.start;
    self->body_end = self->next_record + size;
    self->rest_evicted = !to_the_end;
    self->resume_position += size;
    return charge(self, size, false) < 0 ? -1 : 0;
}

/* Decompresses the body in hand once more and goes to where it was left. */
int body_decompress_again(Records *self)
{
    int64_t position = self->resume_position, last = self->compressed.size;
    if (self->shared_body != NULL)
        Py_CLEAR(self->shared_body);
    if (decompress(self) < 0)
        return -1;
    int64_t size = self->body_end - self->body_start;
    if (size != last || position > size)
        return walk_corrupt(self, self->compressed.resume_offset, "a body of %lld bytes that had %lld before",
                            (long long)size, (long long)last);
    self->next_record += position;
    self->rest_evicted = false;
    int64_t kept = charge(self, size, true);
    if (kept < 0) {
        evict(self);
        return -1;
    }
    if (self->shared_bodies != NULL)
        return body_share(self);
    return kept < size ? keep_window(self, kept) : 0;
}
