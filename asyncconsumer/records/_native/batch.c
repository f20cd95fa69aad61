/* The start of a batch of magic 2: its checksum, the filter for aborted transactions, and its body. */

#include "batch.h"

#include "crc32c.h"

enum {
    LAST_CODEC = 4,
    MAX_CONTROL_BODY = 64 << 10, /* bytes of a control batch; brokers write less than 100, without compression */
};

/* Returns whether the open control batch is the end of an aborted transaction. -1 with an exception. */
static int is_abort_marker(Records *self)
{
    ParsedRecord parsed;
    if (self->remaining == 0)
        return 0;
    Reason reason = parse_record(self, &parsed);
    if (reason != NULL)
        return walk_corrupt_record(self, reason);
    if (parsed.key == NULL || parsed.key_length < 4)
        return walk_corrupt_record(self, "a control key that is too short");
    return int16_at(parsed.key + 2) == 0;
}

static int open_body(Records *self, const uint8_t *entry, const uint8_t *entry_end, int64_t count)
{
    int codec = entry[22] & 7;
    bool is_control = entry[22] & 0x20;
    self->next_record = entry + BATCH_HEADER_SIZE;
    self->body_end = entry_end;
    if (codec > LAST_CODEC)
        return walk_corrupt(self, self->last_offset + 1, "unknown compression codec %d", codec);
    if (codec != 0 && count > 0) {
        CompressedBody compressed = {
            .data = self->next_record, .length = entry_end - self->next_record, .codec = codec,
            .max_size = is_control && self->max_decompressed_bytes > MAX_CONTROL_BODY ? MAX_CONTROL_BODY
                                                                                     : self->max_decompressed_bytes,
            .resume_offset = self->last_offset + 1,
        };
        if (body_decompress(self, &compressed) < 0)
            return -1;
    }
    if (count > (self->body_end - self->next_record) / MIN_RECORD_SIZE)
        return walk_corrupt(self, self->last_offset + 1,
                            "a record count of %lld that does not fit its %lld bytes", (long long)count,
                            (long long)(self->body_end - self->next_record));
    self->remaining = count;
    return 0;
}

/* read_committed: returns 1 if the batch is to be skipped, 0 if not, and -1 with an exception. */
static int is_aborted(Records *self, const uint8_t *entry, const uint8_t *entry_end)
{
    int64_t producer = int64_at(entry + 43);
    int attributes = be16(entry + 21);
    if (self->aborted == NULL || producer < 0)
        return 0;
    while (self->aborted_index < PyList_GET_SIZE(self->aborted)) {
        PyObject *pair = PyList_GET_ITEM(self->aborted, self->aborted_index);
        long long first = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 0));
        if (first > self->last_offset)
            break;
        if (PySet_Add(self->aborted_producers, PyTuple_GET_ITEM(pair, 1)) < 0)
            return -1;
        self->aborted_index++;
    }
    PyObject *id = PyLong_FromLongLong(producer);
    if (id == NULL)
        return -1;
    int result = 0;
    if (attributes & 0x20) {
        result = open_body(self, entry, entry_end, int32_at(entry + 57));
        if (result == 0)
            result = is_abort_marker(self);
        if (result == 1)
            result = PySet_Discard(self->aborted_producers, id) < 0 ? -1 : 0;
    }
    else if (attributes & 0x10)
        result = PySet_Contains(self->aborted_producers, id);
    Py_DECREF(id);
    return result;
}

static int corrupt_checksum(Records *self, const uint8_t *entry)
{
    int64_t base = int64_at(entry), delta = int32_at(entry + 23), count = int32_at(entry + 57);
    int64_t resume = walk_following_offset(self);
    if (resume < 0) /* No batch follows. The header gives the end offset if its fields do not contradict each other. */
        resume = delta >= 0 && count == delta + 1 && base <= INT64_MAX - count ? base + count : -1;
    return walk_corrupt(self, resume, "its checksum does not match");
}

/* Returns 1 if the batch is open or skipped, and -1 with an exception. */
int batch_open(Records *self, const uint8_t *entry, const uint8_t *entry_end)
{
    int64_t base = int64_at(entry), delta = int32_at(entry + 23), count = int32_at(entry + 57);
    int attributes = be16(entry + 21);
    if (self->check_crc && crc32c_of(entry + 21, (size_t)(entry_end - entry - 21)) != be32(entry + 17))
        return corrupt_checksum(self, entry);
    if (delta < 0 || base > INT64_MAX - 1 - delta)
        return walk_corrupt(self, walk_following_offset(self), "a last offset out of range");
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
    if (aborted || (attributes & 0x20) || self->last_offset < self->next_offset || count == 0) {
        walk_skip_batch(self);
        return 1;
    }
    return open_body(self, entry, entry_end, count) < 0 ? -1 : 1;
}
