/* Message sets of magic 0 and 1: what brokers before 0.11 store, and newer ones send down-converted.

   An entry is one message. A compressed one is a wrapper: its value inflates to a whole set of
   messages, whose offsets are absolute in magic 0 and count from the wrapper's first in magic 1;
   the wrapper itself carries the offset of its last. */

#include "native.h"

#include "crc32c.h"

enum {
    HEAD = 12,
    LAST_CODEC = 3,               /* zstd came with magic 2 */
    LZ4_WITHOUT_HEADER_CHECK = 11 /* magic 0 clients computed that checksum wrongly */
};

typedef struct {
    int64_t offset, timestamp;
    int attributes;
    const uint8_t *key, *value;
    int32_t key_length, value_length;
} Message;

static Reason read_field(Reader *r, const uint8_t **at, int32_t *length, Reason if_negative)
{
    if (bytes_left(r) < 4)
        return REASON_CUT_OFF;
    *length = int32_at(r->position);
    r->position += 4;
    if (*length < -1)
        return if_negative;
    if (*length > bytes_left(r))
        return REASON_CUT_OFF;
    *at = *length < 0 ? NULL : r->position;
    if (*length > 0)
        r->position += *length;
    return NULL;
}

/* The whole message lies between `entry` and `end`: that its length fits was checked before. */
static Reason read_message(const uint8_t *entry, const uint8_t *end, Message *message)
{
    Reader r = {entry + 18, end};
    message->offset = int64_at(entry);
    message->attributes = entry[17];
    message->timestamp = -1;
    if (entry[16] == 1) {
        if (bytes_left(&r) < 8)
            return REASON_CUT_OFF;
        message->timestamp = int64_at(r.position);
        r.position += 8;
    }
    Reason bad = read_field(&r, &message->key, &message->key_length, "a negative key length");
    if (bad == NULL)
        bad = read_field(&r, &message->value, &message->value_length, "a negative value length");
    if (bad == NULL && r.position != r.end)
        bad = "a length that does not match its fields";
    return bad;
}

/* Where the message behind the one at `at` begins; NULL if its length makes no sense. */
const uint8_t *legacy_message_after(const Records *self, const uint8_t *at)
{
    int64_t there = self->body_end - at, length = there < HEAD ? 0 : int32_at(at + 8);
    return length < (self->magic ? 22 : 14) || there < HEAD + length ? NULL : at + HEAD + length;
}

Reason legacy_parse_record(Records *self, ParsedRecord *parsed)
{
    Message message;
    const uint8_t *end = legacy_message_after(self, self->next_record);
    if (end == NULL) /* the survey saw another: somebody writes to the buffer */
        return "a length that does not match its set";
    Reason bad = read_message(self->next_record, end, &message);
    if (bad != NULL)
        return bad;
    if (message.attributes & 7) /* a wrapper that stands alone was opened, not read */
        return "compression inside compression";
    if (message.offset < 0 || message.offset > self->last_offset - self->base_offset)
        return "an offset outside its batch";
    parsed->offset = self->base_offset + message.offset;
    parsed->timestamp = self->append_time ? self->base_timestamp : message.timestamp;
    parsed->timestamp_type = self->timestamp_type;
    parsed->key = message.key;
    parsed->key_length = message.key_length;
    parsed->value = message.value;
    parsed->value_length = message.value_length;
    parsed->header_count = 0;
    self->next_record = end;
    return NULL;
}

/* Counts the inner messages, so that the last one's offset is known before the first is read. */
static int survey(Records *self, int magic, int64_t wrapper_offset)
{
    const uint8_t *at = self->next_record;
    int64_t count = 0, first = 0, last = -1, resume = wrapper_offset + 1;
    for (; at < self->body_end; count++) {
        int64_t there = self->body_end - at, length = there < HEAD ? 0 : int32_at(at + 8);
        if (length < (magic ? 22 : 14) || there < HEAD + length)
            return walk_corrupt(self, resume, "a compressed message set that ends in the middle");
        if (at[16] != magic)
            return walk_corrupt(self, resume, "a message of magic %d inside one of magic %d", (int8_t)at[16], magic);
        last = int64_at(at);
        if (count == 0)
            first = last;
        at += HEAD + length;
    }
    if (count == 0)
        return walk_corrupt(self, resume, "an empty compressed message set");
    if (last < 0 || last > wrapper_offset)
        return walk_corrupt(self, resume, "a compressed message set whose offsets do not match");
    self->base_offset = magic ? wrapper_offset - last : 0;
    self->remaining = count;
    if (first >= 0 && first <= last)
        self->error_offset = self->base_offset + first;
    return 1;
}

static int open_wrapper(Records *self, const Message *wrapper, int magic)
{
    int codec = wrapper->attributes & 7;
    int64_t resume = wrapper->offset + 1;
    if (codec > LAST_CODEC)
        return walk_corrupt(self, resume, "unknown compression codec %d", codec);
    if (wrapper->value == NULL)
        return walk_corrupt(self, resume, "a compressed message set without a value");
    if (codec == 3 && magic == 0)
        codec = LZ4_WITHOUT_HEADER_CHECK;
    CompressedBody compressed = {.data = wrapper->value, .length = wrapper->value_length, .codec = codec,
                                 .max_size = self->max_decompressed_bytes, .resume_offset = resume};
    if (body_decompress(self, &compressed) < 0)
        return -1;
    return survey(self, magic, wrapper->offset);
}

/* 1: there are records in hand, or it lies below the asked offset; -1: error. */
int legacy_open(Records *self, const uint8_t *entry, const uint8_t *entry_end)
{
    Message message;
    int magic = entry[16];
    self->magic = (int8_t)magic;
    if (self->error_offset == INT64_MAX)
        return walk_corrupt(self, -1, "an offset out of range");
    self->last_offset = self->error_offset;
    if (self->check_crc && crc32_of(entry + 16, (size_t)(entry_end - entry - 16)) != be32(entry + 12)) {
        int64_t resume = walk_following_offset(self);
        return walk_corrupt(self, resume < 0 ? self->error_offset + 1 : resume, "its checksum does not match");
    }
    Reason bad = read_message(entry, entry_end, &message);
    if (bad != NULL)
        return walk_corrupt(self, self->error_offset + 1, "a record with %s", bad);
    if (self->last_offset < self->next_offset) {
        walk_skip_batch(self);
        return 1;
    }
    self->append_time = magic == 1 && (message.attributes & 8);
    self->timestamp_type = magic == 0 ? -1 : self->append_time;
    self->base_timestamp = message.timestamp;
    if (message.attributes & 7)
        return open_wrapper(self, &message, magic);
    self->next_record = entry;
    self->body_end = entry_end;
    self->base_offset = 0;
    self->remaining = 1;
    return 1;
}
