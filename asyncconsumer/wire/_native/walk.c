/* From batch to batch and from record to record over bytes nobody has vouched for.

   Nothing here makes an object per record. What does not hold ends the walk with CorruptRecords,
   which is kept and raised again, so that records before it are delivered and it is not missed. */

#include "native.h"

#include "crc32c.h"

enum {
    ENTRY_HEAD = 12,      /* offset and length, in every format */
    HEAD_TO_MAGIC = 17,
    LEAST_LENGTH = 14,    /* of an empty message of magic 0, the smallest entry there is */
    BATCH_HEAD = 61,      /* all of a magic 2 batch before its records */
    LEAST_RECORD = 7,     /* length, attributes, two deltas, two lengths, number of headers */
    LEAST_HEADER = 2,
    LAST_CODEC = 4,
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
    self->at = self->end = self->record = self->body_end = NULL;
    self->left = 0;
    inflate_let_go(self);
    Py_CLEAR(self->body);
    if (self->view.obj != NULL)
        PyBuffer_Release(&self->view);
}

/* The offset of the entry behind the one in hand, or -1 when there is none that makes sense. */
int64_t walk_entry_after(const Records *self)
{
    if (self->end - self->at < HEAD_TO_MAGIC)
        return -1;
    int64_t offset = int64_at(self->at), length = int32_at(self->at + 8);
    bool sane = length >= LEAST_LENGTH && length <= self->max_batch && self->at[16] <= 2;
    return sane && offset > self->stand ? offset : -1;
}

int walk_corrupt_because(Records *self, int64_t resume, PyObject *reason)
{
    int64_t offset = self->stand > self->floor ? self->stand : self->floor;
    if (resume >= 0 && resume < self->floor)
        resume = self->floor;
    PyObject *after = resume < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(resume);
    PyObject *error = after ? PyObject_CallFunction(corrupt_records, "OOLOO", self->topic, self->partition,
                                                    (long long)offset, reason, after)
                            : NULL;
    Py_XDECREF(after);
    if (error == NULL)
        return -1;
    self->left = 0;
    self->record = self->body_end = NULL;
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
    walk_corrupt_because(self, resume, text);
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
    self->floor = PyLong_AsLongLong(resume);
    Py_DECREF(resume);
    Py_CLEAR(self->error);
    return 0;
}

static int truncated(Records *self, const uint8_t *entry, int64_t needed)
{
    if (entry == self->view.buf) /* not even one came whole */
        self->incomplete = needed;
    return 0;
}

/* --- one record of magic 2 -------------------------------------------------------------------------- */

static bool is_utf8(const uint8_t *at, int64_t length)
{
    int64_t i = 0;
    while (i < length && at[i] < 0x80)
        i++;
    if (i == length)
        return true;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)length, NULL);
    if (text == NULL)
        PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* A length and that many bytes; -1 is null. */
static inline Reason read_bytes(Reader *r, const uint8_t **at, int32_t *length, Reason if_negative)
{
    int64_t size;
    Reason bad = read_varint(r, &size);
    if (bad != NULL)
        return bad;
    if (size < -1)
        return if_negative;
    if (size > left_in(r))
        return REASON_CUT;
    *at = size < 0 ? NULL : r->at;
    *length = (int32_t)size;
    if (size > 0)
        r->at += size;
    return NULL;
}

static Reason check_headers(Reader *r, int64_t count)
{
    if (count < 0)
        return "a negative number of headers";
    if (count > left_in(r) / LEAST_HEADER)
        return "more headers than fit the record";
    for (; count > 0; count--) {
        const uint8_t *at;
        int32_t length;
        Reason bad = read_bytes(r, &at, &length, "a negative header key length");
        if (bad != NULL)
            return bad;
        if (at == NULL)
            return "a negative header key length";
        if (!is_utf8(at, length))
            return "a header key that is not UTF-8";
        bad = read_bytes(r, &at, &length, "a negative header value length");
        if (bad != NULL)
            return bad;
    }
    return NULL;
}

static inline Reason read_record(Records *self, Sight *sight)
{
    Reader r = {self->record, self->body_end};
    int64_t length, timestamp, delta, headers;
    Reason bad = read_varint(&r, &length);
    if (bad != NULL)
        return bad;
    if (length < 0)
        return "a negative length";
    if (length > left_in(&r))
        return "a length that goes beyond its batch";
    r.end = r.at + length;
    if (length == 0)
        return REASON_CUT;
    r.at++; /* attributes: none are defined */
    if ((bad = read_varlong(&r, &timestamp)) != NULL || (bad = read_varint(&r, &delta)) != NULL
        || (bad = read_bytes(&r, &sight->key, &sight->key_length, "a negative key length")) != NULL
        || (bad = read_bytes(&r, &sight->value, &sight->value_length, "a negative value length")) != NULL
        || (bad = read_varint(&r, &headers)) != NULL)
        return bad;
    sight->headers = r.at;
    sight->header_count = (int32_t)headers;
    if (headers != 0 && (bad = check_headers(&r, headers)) != NULL)
        return bad;
    sight->headers_end = r.at;
    if (r.at != r.end)
        return "a length that does not match its fields";
    if (delta < 0 || delta > self->last_offset - self->base_offset)
        return "an offset outside its batch";
    sight->offset = self->base_offset + delta;
    sight->timestamp = self->base_timestamp;
    if (!self->append_time && __builtin_add_overflow(self->base_timestamp, timestamp, &sight->timestamp))
        return "a timestamp out of range";
    sight->timestamp_type = self->timestamp_type;
    self->record = r.end;
    return NULL;
}

/* --- one batch of magic 2 ---------------------------------------------------------------------------- */

static int bad_record(Records *self, Reason reason)
{
    return walk_corrupt(self, self->last_offset + 1, "a record with %s", reason);
}

/* Is the batch in hand (a control batch) the end of an aborted transaction? 1, 0, or -1. */
static int is_abort_marker(Records *self)
{
    Sight sight;
    if (self->left == 0)
        return 0;
    Reason bad = read_record(self, &sight);
    if (bad != NULL)
        return bad_record(self, bad);
    if (sight.key == NULL || sight.key_length < 4)
        return bad_record(self, "a control key that is too short");
    return int16_at(sight.key + 2) == 0;
}

static int open_body(Records *self, const uint8_t *entry, const uint8_t *entry_end, int64_t count)
{
    int codec = entry[22] & 7;
    self->record = entry + BATCH_HEAD;
    self->body_end = entry_end;
    if (codec > LAST_CODEC)
        return walk_corrupt(self, self->last_offset + 1, "unknown compression codec %d", codec);
    if (codec != 0 && count > 0
        && inflate_body(self, self->last_offset + 1, codec, self->record, entry_end - self->record) < 0)
        return -1;
    if (count > (self->body_end - self->record) / LEAST_RECORD)
        return walk_corrupt(self, self->last_offset + 1,
                            "a record count of %lld that does not fit its %lld bytes", (long long)count,
                            (long long)(self->body_end - self->record));
    self->left = count;
    return 0;
}

/* read_committed: 1 when the batch is to be passed over, 0 when not, -1 on error. */
static int is_aborted(Records *self, const uint8_t *entry, const uint8_t *entry_end)
{
    int64_t producer = int64_at(entry + 43);
    int attributes = be16(entry + 21);
    if (self->aborted == NULL || producer < 0)
        return 0;
    while (self->aborted_at < PyList_GET_SIZE(self->aborted)) {
        PyObject *pair = PyList_GET_ITEM(self->aborted, self->aborted_at);
        long long first = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 0));
        if (first > self->last_offset)
            break;
        if (PySet_Add(self->aborting, PyTuple_GET_ITEM(pair, 1)) < 0)
            return -1;
        self->aborted_at++;
    }
    PyObject *id = PyLong_FromLongLong(producer);
    if (id == NULL)
        return -1;
    int answer = 0;
    if (attributes & 0x20) {
        answer = open_body(self, entry, entry_end, int32_at(entry + 57));
        if (answer == 0)
            answer = is_abort_marker(self);
        if (answer == 1)
            answer = PySet_Discard(self->aborting, id) < 0 ? -1 : 0;
    }
    else if (attributes & 0x10)
        answer = PySet_Contains(self->aborting, id);
    Py_DECREF(id);
    return answer;
}

void walk_pass_over(Records *self)
{
    self->left = 0;
    self->record = self->body_end = NULL;
    if (self->last_offset >= self->floor)
        self->floor = self->last_offset + 1;
}

static int bad_checksum(Records *self, const uint8_t *entry)
{
    int64_t base = int64_at(entry), delta = int32_at(entry + 23), count = int32_at(entry + 57);
    int64_t resume = walk_entry_after(self);
    if (resume < 0) /* no batch behind it; a header that agrees with itself may be believed */
        resume = delta >= 0 && count == delta + 1 && base <= INT64_MAX - count ? base + count : -1;
    return walk_corrupt(self, resume, "its checksum does not match");
}

/* 1: there may be records in hand; -1: error. */
static int open_batch(Records *self, const uint8_t *entry, const uint8_t *entry_end)
{
    int64_t base = int64_at(entry), delta = int32_at(entry + 23), count = int32_at(entry + 57);
    int attributes = be16(entry + 21);
    if (self->check_crc && crc32c_of(entry + 21, (size_t)(entry_end - entry - 21)) != be32(entry + 17))
        return bad_checksum(self, entry);
    if (delta < 0 || base > INT64_MAX - 1 - delta)
        return walk_corrupt(self, walk_entry_after(self), "a last offset out of range");
    self->magic = 2;
    self->base_offset = base;
    self->last_offset = base + delta;
    self->leader_epoch = int32_at(entry + 12);
    self->append_time = (attributes & 8) != 0;
    self->timestamp_type = self->append_time;
    self->base_timestamp = int64_at(entry + (self->append_time ? 35 : 27));
    if (count < 0)
        return walk_corrupt(self, self->last_offset + 1, "a negative record count");
    int aborted = is_aborted(self, entry, entry_end);
    if (aborted < 0)
        return -1;
    if (aborted || (attributes & 0x20) || self->last_offset < self->floor || count == 0) {
        walk_pass_over(self);
        return 1;
    }
    return open_body(self, entry, entry_end, count) < 0 ? -1 : 1;
}

/* --- the set as a whole --------------------------------------------------------------------------------- */

/* 1: a batch was opened (and may be empty); 0: there is no whole one left; -1: error. */
static int open_entry(Records *self)
{
    const uint8_t *entry = self->at;
    int64_t there = self->end - entry;
    self->inflated = false;
    Py_CLEAR(self->body);
    if (there == 0)
        return 0;
    if (there < ENTRY_HEAD)
        return truncated(self, entry, BATCH_HEAD);
    int64_t base = int64_at(entry), length = int32_at(entry + 8);
    self->stand = base;
    if (length < LEAST_LENGTH)
        return walk_corrupt(self, -1, "a batch length of %lld, less than the least possible %d",
                            (long long)length, LEAST_LENGTH);
    if (length > self->max_batch)
        return walk_corrupt(self, -1, "a batch length of %lld, more than max_batch allows (%lld)",
                            (long long)length, (long long)self->max_batch);
    if (there < HEAD_TO_MAGIC)
        return truncated(self, entry, ENTRY_HEAD + length);
    bool whole = there >= ENTRY_HEAD + length;
    int magic = (int8_t)entry[16];
    self->at = whole ? entry + ENTRY_HEAD + length : self->end;
    if (magic < 0 || magic > 2)
        return walk_corrupt(self, walk_entry_after(self), "unknown magic %d", magic);
    if (magic == 2 && length < BATCH_HEAD - ENTRY_HEAD)
        return walk_corrupt(self, walk_entry_after(self),
                            "a batch length of %lld, less than its header", (long long)length);
    if (!whole)
        return truncated(self, entry, ENTRY_HEAD + length);
    if (base < 0)
        return walk_corrupt(self, walk_entry_after(self), "a negative offset");
    return magic == 2 ? open_batch(self, entry, self->at) : legacy_open(self, entry, self->at);
}

static inline int next_of_batch(Records *self, Sight *sight)
{
    sight->start = self->record;
    Reason bad = self->magic == 2 ? read_record(self, sight) : legacy_record(self, sight);
    if (bad != NULL)
        return bad_record(self, bad);
    self->left--;
    sight->floor_before = self->floor;
    bool wanted = sight->offset >= self->floor;
    if (wanted)
        self->floor = sight->offset + 1;
    if (self->left == 0 && self->record == self->body_end)
        self->floor = self->last_offset + 1; /* also over what compaction took from the end */
    return wanted;
}

int walk_next(Records *self, Sight *sight)
{
    if (self->error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(self->error), self->error);
        return -1;
    }
    for (;;) {
        while (self->left > 0) {
            int found = next_of_batch(self, sight);
            if (found != 0)
                return found;
        }
        if (self->record != self->body_end) {
            int64_t over = self->body_end - self->record;
            self->record = self->body_end;
            return walk_corrupt(self, self->last_offset + 1, "%lld bytes after its last record",
                                (long long)over);
        }
        int opened = open_entry(self);
        if (opened < 0)
            return -1;
        if (opened == 0) {
            walk_release(self);
            return 0;
        }
    }
}

void walk_unread(Records *self, const Sight *sight)
{
    self->record = sight->start;
    self->left++;
    self->floor = sight->floor_before;
}
