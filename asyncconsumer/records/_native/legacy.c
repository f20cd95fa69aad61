/* Message sets of magic 0 and 1. Brokers before 0.11 store this format, and newer ones send it down-converted.

   An entry is one message. A compressed message is a wrapper: its value decompresses to a set of messages. Their
   offsets are absolute in magic 0, and relative to the first one in magic 1. The wrapper carries the offset of its
   last message. */

#include "native.h"

#include "crc32c.h"

enum {
    ENTRY_HEADER_SIZE = 12,
    LAST_CODEC = 3,               /* zstd came with magic 2 */
    LZ4_WITHOUT_HEADER_CHECK = 11 /* clients of magic 0 calculated this checksum incorrectly */
};

typedef struct {
    int64_t offset, timestamp;
    int attributes;
    const uint8_t *key, *value;
    int32_t key_length, value_length;
} LegacyMessage;

static Reason read_field(Reader *r, const uint8_t **data, int32_t *length, Reason if_negative)
{
    if (bytes_left(r) < 4)
        return REASON_CUT_OFF;
    *length = int32_at(r->position);
    r->position += 4;
    if (*length < -1)
        return if_negative;
    if (*length > bytes_left(r))
        return REASON_CUT_OFF;
    *data = *length < 0 ? NULL : r->position;
    if (*length > 0)
        r->position += *length;
    return NULL;
}

/* Parses the message from `entry` to `end`. The caller has checked its length. */
static Reason read_message(const uint8_t *entry, const uint8_t *end, LegacyMessage *message)
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
    Reason reason = read_field(&r, &message->key, &message->key_length, "a negative key length");
    if (reason == NULL)
        reason = read_field(&r, &message->value, &message->value_length, "a negative value length");
    if (reason == NULL && r.position != r.end)
        reason = "a length that does not match its fields";
    return reason;
}

/* Returns the position after the message at `position`, or NULL if its length is not valid. */
const uint8_t *legacy_message_after(const Records *self, const uint8_t *position)
{
    int64_t available = self->body_end - position;
    int64_t length = available < ENTRY_HEADER_SIZE ? 0 : int32_at(position + 8);
    return length < (self->magic ? 22 : 14) || available < ENTRY_HEADER_SIZE + length
             ? NULL : position + ENTRY_HEADER_SIZE + length;
}

Reason legacy_parse_record(Records *self, ParsedRecord *parsed)
{
    LegacyMessage message;
    const uint8_t *end = legacy_message_after(self, self->next_record);
    if (end == NULL) /* the length was checked before, so the buffer has been changed meanwhile */
        return "a length that does not match its set";
    Reason reason = read_message(self->next_record, end, &message);
    if (reason != NULL)
        return reason;
    if (message.attributes & 7) /* a wrapper in a wrapper: legacy_open() has opened the outer one */
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

/* Counts the inner messages. The offset of the last one must be known before the first is parsed. */
static int survey(Records *self, int magic, int64_t wrapper_offset)
{
    const uint8_t *position = self->next_record;
    int64_t count = 0, first = 0, last = -1, resume = wrapper_offset + 1;
    for (; position < self->body_end; count++) {
        int64_t available = self->body_end - position;
        int64_t length = available < ENTRY_HEADER_SIZE ? 0 : int32_at(position + 8);
        if (length < (magic ? 22 : 14) || available < ENTRY_HEADER_SIZE + length)
            return walk_corrupt(self, resume, "a compressed message set that ends in the middle");
        if (position[16] != magic)
            return walk_corrupt(self, resume, "a message of magic %d inside one of magic %d", (int8_t)position[16],
                                magic);
        last = int64_at(position);
        if (count == 0)
            first = last;
        position += ENTRY_HEADER_SIZE + length;
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

static int open_wrapper(Records *self, const LegacyMessage *wrapper, int magic)
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

/* Returns 1 if the message or wrapper is open or skipped, and -1 with an exception. */
int legacy_open(Records *self, const uint8_t *entry, const uint8_t *entry_end)
{
    LegacyMessage message;
    int magic = entry[16];
    self->magic = (int8_t)magic;
    if (self->error_offset == INT64_MAX)
        return walk_corrupt(self, -1, "an offset out of range");
    self->last_offset = self->error_offset;
    if (self->check_crc && crc32_of(entry + 16, (size_t)(entry_end - entry - 16)) != be32(entry + 12)) {
        int64_t resume = walk_following_offset(self);
        return walk_corrupt(self, resume < 0 ? self->error_offset + 1 : resume, "its checksum does not match");
    }
    Reason reason = read_message(entry, entry_end, &message);
    if (reason != NULL)
        return walk_corrupt(self, self->error_offset + 1, "a record with %s", reason);
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
