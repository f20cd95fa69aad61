/* Iteration over the batches of a record set and over their records. The bytes are not trusted.

   No object is created for a record. Corrupt bytes end the iteration with CorruptRecords. The error is stored and
   raised again by each later call. */

#include "native.h"

#include "batch.h"

enum {
    ENTRY_HEADER_SIZE = 12, /* offset and length, in every format */
    SIZE_TO_MAGIC = 17,
    MIN_ENTRY_LENGTH = 14,  /* length of an empty message of magic 0, the smallest entry */
};

static PyObject *corrupt_records; /* the exception class */

int walk_prepare(void)
{
    PyObject *errors = PyImport_ImportModule("asyncconsumer.errors");
    corrupt_records = errors ? PyObject_GetAttrString(errors, "CorruptRecords") : NULL;
    Py_XDECREF(errors);
    return corrupt_records ? 0 : -1;
}

/* --- errors and release -------------------------------------------------------------------- */

void walk_release(Records *self)
{
    self->next_entry = self->end = self->next_record = self->body_end = self->body_start = NULL;
    self->remaining = 0;
    body_drop(self);
    Py_CLEAR(self->shared_body);
    Py_buffer view = self->view;
    self->view.obj = NULL; /* releasing it may run code that calls this function */
    PyBuffer_Release(&view);
}

/* Returns the offset of the entry after the current one, or -1 if there is none with a plausible header. */
int64_t walk_following_offset(const Records *self)
{
    if (self->end - self->next_entry < SIZE_TO_MAGIC)
        return -1;
    int64_t offset = int64_at(self->next_entry), length = int32_at(self->next_entry + 8);
    bool is_plausible = length >= MIN_ENTRY_LENGTH && length <= self->max_batch && self->next_entry[16] <= 2;
    return is_plausible && offset > self->error_offset ? offset : -1;
}

int walk_corrupt_text(Records *self, int64_t resume, PyObject *reason)
{
    int64_t offset = self->error_offset > self->next_offset ? self->error_offset : self->next_offset;
    if (resume >= 0 && resume < self->next_offset)
        resume = self->next_offset;
    PyObject *after = resume < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(resume);
    PyObject *error = after ? PyObject_CallFunction(corrupt_records, "OOLOO", self->topic, self->partition,
                                                    (long long)offset, reason, after)
                            : NULL;
    Py_XDECREF(after);
    if (error == NULL)
        return -1;
    self->remaining = self->trailing_bytes = 0;
    self->next_record = self->body_end = NULL;
    Py_XSETREF(self->error, error);
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    if (resume < 0)
        walk_release(self);
    return -1;
}

int walk_corrupt(Records *self, int64_t resume, const char *reason, ...)
{
    va_list values;
    va_start(values, reason);
    PyObject *text = PyUnicode_FromFormatV(reason, values);
    va_end(values);
    if (text == NULL)
        return -1;
    walk_corrupt_text(self, resume, text);
    Py_DECREF(text);
    return -1;
}

int walk_skip_corrupt(Records *self)
{
    PyObject *resume = PyObject_GetAttrString(self->error, "resume");
    if (resume == NULL)
        return -1;
    if (resume == Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(self->error), self->error);
        Py_DECREF(resume);
        return -1;
    }
    self->next_offset = PyLong_AsLongLong(resume);
    Py_DECREF(resume);
    Py_CLEAR(self->error);
    return 0;
}

static int set_incomplete(Records *self, const uint8_t *entry, int64_t needed)
{
    if (entry == self->end - self->size) /* the first entry is incomplete */
        self->incomplete = needed;
    return 0;
}

int walk_corrupt_record(Records *self, Reason reason)
{
    return walk_corrupt(self, self->last_offset + 1, "a record with %s", reason);
}

void walk_skip_batch(Records *self)
{
    self->remaining = 0;
    self->next_record = self->body_end = NULL;
    if (self->last_offset >= self->next_offset)
        self->next_offset = self->last_offset + 1;
}

/* --- the record set ----------------------------------------------------------------------------------- */

/* Returns 1 if a batch was opened, 0 if there is no complete one, and -1 with an exception. The batch may be empty. */
static int open_entry(Records *self)
{
    const uint8_t *entry = self->next_entry;
    int64_t available = self->end - entry;
    self->is_decompressed = self->rest_evicted = false;
    Py_CLEAR(self->shared_body);
    if (available == 0)
        return 0;
    if (available < ENTRY_HEADER_SIZE)
        return set_incomplete(self, entry, BATCH_HEADER_SIZE);
    int64_t base = int64_at(entry), length = int32_at(entry + 8);
    self->error_offset = base;
    if (length < MIN_ENTRY_LENGTH)
        return walk_corrupt(self, -1, "a batch length of %lld, less than the minimum of %d",
                            (long long)length, MIN_ENTRY_LENGTH);
    if (length > self->max_batch)
        return walk_corrupt(self, -1, "a batch length of %lld, more than the maximum of %lld",
                            (long long)length, (long long)self->max_batch);
    if (available < SIZE_TO_MAGIC)
        return set_incomplete(self, entry, ENTRY_HEADER_SIZE + length);
    bool is_complete = available >= ENTRY_HEADER_SIZE + length;
    int magic = (int8_t)entry[16];
    self->next_entry = is_complete ? entry + ENTRY_HEADER_SIZE + length : self->end;
    if (magic < 0 || magic > 2)
        return walk_corrupt(self, walk_following_offset(self), "unknown magic %d", magic);
    if (magic == 2 && length < BATCH_HEADER_SIZE - ENTRY_HEADER_SIZE)
        return walk_corrupt(self, walk_following_offset(self),
                            "a batch length of %lld, less than its header", (long long)length);
    if (!is_complete)
        return set_incomplete(self, entry, ENTRY_HEADER_SIZE + length);
    if (base < 0)
        return walk_corrupt(self, walk_following_offset(self), "a negative offset");
    return magic == 2 ? batch_open(self, entry, self->next_entry) : legacy_open(self, entry, self->next_entry);
}

static inline int next_of_batch(Records *self, ParsedRecord *parsed)
{
    parsed->start = self->next_record;
    Reason reason = self->magic == 2 ? parse_record(self, parsed) : legacy_parse_record(self, parsed);
    if (reason != NULL)
        return walk_corrupt_record(self, reason);
    self->remaining--;
    parsed->next_offset_before = self->next_offset;
    bool is_new = parsed->offset >= self->next_offset;
    if (is_new)
        self->next_offset = parsed->offset + 1;
    if (self->remaining == 0 && self->next_record == self->body_end)
        self->next_offset = self->last_offset + 1; /* skips offsets that compaction removed from the end of the batch */
    return is_new;
}

/* Whether the next batch begins at or after the end offset. It is not read, so it cannot raise an error. */
static inline bool starts_at_end_offset(const Records *self)
{
    return self->end - self->next_entry >= SIZE_TO_MAGIC && self->next_entry[16] == 2
           && int64_at(self->next_entry) >= self->end_offset;
}

/* Returns whether the event loop should run now, and sets `paused` in that case. */
static inline bool pause_for_loop(Records *self)
{
    if (!self->cooperative || self->preparing || self->worked < WORK_BETWEEN_PAUSES)
        return false;
    self->paused = PAUSED_FOR_LOOP;
    return true;
}

/* Lets other threads run while prepare() skips many records. Codecs release the GIL, but parsing does not. */
static inline void release_gil(const Records *self)
{
    if (self->preparing && (self->remaining & 0xFFFF) == 0) {
        Py_BEGIN_ALLOW_THREADS
        Py_END_ALLOW_THREADS
    }
}

int walk_next(Records *self, ParsedRecord *parsed)
{
    self->paused = NOT_PAUSED;
    if (self->error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(self->error), self->error);
        return -1;
    }
    for (;;) {
        while (self->remaining > 0) {
            if (self->next_record == self->body_end && self->rest_evicted) {
                if (pause_for_loop(self))
                    return 0;
                if (body_decompress_again(self) < 0)
                    return self->paused ? 0 : -1;
            }
            int result = next_of_batch(self, parsed);
            if (result > 0 && parsed->offset >= self->end_offset) {
                self->next_offset = parsed->next_offset_before;
                walk_release(self);
                return 0;
            }
            if (result != 0)
                return result;
            release_gil(self);
        }
        if (self->next_record != self->body_end || self->trailing_bytes > 0) {
            int64_t trailing = self->trailing_bytes + (self->body_end - self->next_record);
            self->next_record = self->body_end;
            self->trailing_bytes = 0;
            return walk_corrupt(self, self->last_offset + 1, "%lld bytes after its last record",
                                (long long)trailing);
        }
        if (starts_at_end_offset(self)) {
            walk_release(self);
            return 0;
        }
        if (pause_for_loop(self))
            return 0;
        const uint8_t *entry = self->next_entry;
        int opened = open_entry(self);
        if (opened < 0) {
            if (self->error == NULL) { /* not caused by the bytes: the next call reads this entry again */
                self->next_entry = entry;
                self->next_record = self->body_end = NULL;
                self->remaining = 0;
            }
            return self->paused ? 0 : -1;
        }
        if (opened == 0) {
            walk_release(self);
            return 0;
        }
    }
}

void walk_unread(Records *self, const ParsedRecord *parsed)
{
    self->next_record = parsed->start;
    self->remaining++;
    self->next_offset = parsed->next_offset_before;
}
