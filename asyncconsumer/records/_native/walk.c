/* From batch to batch and from record to record over bytes nobody has vouched for.

   Nothing here makes an object per record. What does not hold ends the walk with CorruptRecords,
   which is kept and raised again, so that records before it are delivered and it is not missed. */

#include "native.h"

#include "batch.h"

enum {
    ENTRY_HEADER_SIZE = 12,      /* offset and length, in every format */
    SIZE_TO_MAGIC = 17,
    MIN_LENGTH = 14,    /* of an empty message of magic 0, the smallest entry there is */
};

static PyObject *corrupt_records; /* the exception class */

int walk_prepare(void)
{
    PyObject *errors = PyImport_ImportModule("asyncconsumer.errors");
    corrupt_records = errors ? PyObject_GetAttrString(errors, "CorruptRecords") : NULL;
    Py_XDECREF(errors);
    return corrupt_records ? 0 : -1;
}

/* --- giving up and letting go ------------------------------------------------------------------- */

void walk_release(Records *self)
{
    self->next_entry = self->end = self->next_record = self->body_end = self->body_start = NULL;
    self->remaining = 0;
    body_drop(self);
    Py_CLEAR(self->shared_body);
    Py_buffer view = self->view;
    self->view.obj = NULL; /* its owner may run code that comes here again */
    PyBuffer_Release(&view);
}

/* The offset of the entry behind the one in hand, or -1 when there is none that makes sense. */
int64_t walk_following_offset(const Records *self)
{
    if (self->end - self->next_entry < SIZE_TO_MAGIC)
        return -1;
    int64_t offset = int64_at(self->next_entry), length = int32_at(self->next_entry + 8);
    bool sane = length >= MIN_LENGTH && length <= self->max_batch && self->next_entry[16] <= 2;
    return sane && offset > self->error_offset ? offset : -1;
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

static int truncated(Records *self, const uint8_t *entry, int64_t needed)
{
    if (entry == self->end - self->size) /* not even one came whole */
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

/* --- the set as a whole --------------------------------------------------------------------------------- */

/* 1: a batch was opened (and may be empty); 0: there is no whole one left; -1: error. */
static int open_entry(Records *self)
{
    const uint8_t *entry = self->next_entry;
    int64_t there = self->end - entry;
    self->is_decompressed = self->rest_evicted = false;
    Py_CLEAR(self->shared_body);
    if (there == 0)
        return 0;
    if (there < ENTRY_HEADER_SIZE)
        return truncated(self, entry, BATCH_HEADER_SIZE);
    int64_t base = int64_at(entry), length = int32_at(entry + 8);
    self->error_offset = base;
    if (length < MIN_LENGTH)
        return walk_corrupt(self, -1, "a batch length of %lld, less than the minimum of %d",
                            (long long)length, MIN_LENGTH);
    if (length > self->max_batch)
        return walk_corrupt(self, -1, "a batch length of %lld, more than the maximum of %lld",
                            (long long)length, (long long)self->max_batch);
    if (there < SIZE_TO_MAGIC)
        return truncated(self, entry, ENTRY_HEADER_SIZE + length);
    bool whole = there >= ENTRY_HEADER_SIZE + length;
    int magic = (int8_t)entry[16];
    self->next_entry = whole ? entry + ENTRY_HEADER_SIZE + length : self->end;
    if (magic < 0 || magic > 2)
        return walk_corrupt(self, walk_following_offset(self), "unknown magic %d", magic);
    if (magic == 2 && length < BATCH_HEADER_SIZE - ENTRY_HEADER_SIZE)
        return walk_corrupt(self, walk_following_offset(self),
                            "a batch length of %lld, less than its header", (long long)length);
    if (!whole)
        return truncated(self, entry, ENTRY_HEADER_SIZE + length);
    if (base < 0)
        return walk_corrupt(self, walk_following_offset(self), "a negative offset");
    return magic == 2 ? batch_open(self, entry, self->next_entry) : legacy_open(self, entry, self->next_entry);
}

static inline int next_of_batch(Records *self, ParsedRecord *parsed)
{
    parsed->start = self->next_record;
    Reason bad = self->magic == 2 ? parse_record(self, parsed) : legacy_parse_record(self, parsed);
    if (bad != NULL)
        return walk_corrupt_record(self, bad);
    self->remaining--;
    parsed->next_offset_before = self->next_offset;
    bool wanted = parsed->offset >= self->next_offset;
    if (wanted)
        self->next_offset = parsed->offset + 1;
    if (self->remaining == 0 && self->next_record == self->body_end)
        self->next_offset = self->last_offset + 1; /* also over what compaction took from the end */
    return wanted;
}

/* Whether the next batch begins behind the end: what is in it, or wrong with it, is not asked for. */
static inline bool is_beyond(const Records *self)
{
    return self->end - self->next_entry >= SIZE_TO_MAGIC && self->next_entry[16] == 2 && int64_at(self->next_entry) >= self->end_offset;
}

/* Whether it is time for the event loop, as far as the reader lets it run. */
static inline bool is_time_to_pause(Records *self)
{
    if (!self->cooperative || self->preparing || self->worked < WORK_BETWEEN_PAUSES)
        return false;
    self->paused = PAUSED_FOR_LOOP;
    return true;
}

/* A thread that passes over many records lets others run: no codec does that for it here. */
static inline void breathe(const Records *self)
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
                if (is_time_to_pause(self))
                    return 0;
                if (body_decompress_again(self) < 0)
                    return self->paused ? 0 : -1;
            }
            int found = next_of_batch(self, parsed);
            if (found > 0 && parsed->offset >= self->end_offset) {
                self->next_offset = parsed->next_offset_before;
                walk_release(self);
                return 0;
            }
            if (found != 0)
                return found;
            breathe(self);
        }
        if (self->next_record != self->body_end || self->trailing_bytes > 0) {
            int64_t over = self->trailing_bytes + (self->body_end - self->next_record);
            self->next_record = self->body_end;
            self->trailing_bytes = 0;
            return walk_corrupt(self, self->last_offset + 1, "%lld bytes after its last record",
                                (long long)over);
        }
        if (is_beyond(self)) {
            walk_release(self);
            return 0;
        }
        if (is_time_to_pause(self))
            return 0;
        const uint8_t *entry = self->next_entry;
        int opened = open_entry(self);
        if (opened < 0) {
            if (self->error == NULL) { /* not the fault of the bytes: whoever asks again gets them */
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
