/* The parser for one record of a batch of magic 2. It is inline, because it takes most of the decoding time. */

#ifndef ASYNCCONSUMER_BATCH_H
#define ASYNCCONSUMER_BATCH_H

#include "native.h"

enum {
    BATCH_HEADER_SIZE = 61, /* bytes before the records */
    MIN_RECORD_SIZE = 7,    /* length, attributes, two deltas, two lengths, number of headers */
    MIN_HEADER_SIZE = 2,
    MAX_HEADERS = 1 << 16,  /* of one record: every two bytes could become three objects */
};

static inline bool is_utf8(const uint8_t *data, int64_t length)
{
    int64_t i = 0;
    while (i < length && data[i] < 0x80)
        i++;
    if (i == length)
        return true;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)data, (Py_ssize_t)length, NULL);
    if (text == NULL)
        PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* Reads a length and that many bytes. A length of -1 means null. */
static inline Reason read_bytes(Reader *r, const uint8_t **data, int32_t *length, Reason if_negative)
{
    int64_t size;
    Reason reason = read_varint(r, &size);
    if (reason != NULL)
        return reason;
    if (size < -1)
        return if_negative;
    if (size > bytes_left(r))
        return REASON_CUT_OFF;
    *data = size < 0 ? NULL : r->position;
    *length = (int32_t)size;
    if (size > 0)
        r->position += size;
    return NULL;
}

static inline Reason check_headers(Reader *r, int64_t count)
{
    if (count < 0)
        return "a negative number of headers";
    if (count > bytes_left(r) / MIN_HEADER_SIZE)
        return "more headers than fit the record";
    if (count > MAX_HEADERS)
        return "more than 65536 headers";
    for (; count > 0; count--) {
        const uint8_t *data;
        int32_t length;
        Reason reason = read_bytes(r, &data, &length, "a negative header key length");
        if (reason != NULL)
            return reason;
        if (data == NULL)
            return "a negative header key length";
        if (!is_utf8(data, length))
            return "a header key that is not UTF-8";
        reason = read_bytes(r, &data, &length, "a negative header value length");
        if (reason != NULL)
            return reason;
    }
    return NULL;
}

static inline Reason parse_record(Records *self, ParsedRecord *parsed)
{
    Reader r = {self->next_record, self->body_end};
    int64_t length, timestamp, delta, headers;
    Reason reason = read_varint(&r, &length);
    if (reason != NULL)
        return reason;
    if (length < 0)
        return "a negative length";
    if (length > bytes_left(&r))
        return "a length that goes beyond its batch";
    r.end = r.position + length;
    if (length == 0)
        return REASON_CUT_OFF;
    r.position++; /* attributes: Kafka defines none for records */
    if ((reason = read_varlong(&r, &timestamp)) != NULL || (reason = read_varint(&r, &delta)) != NULL
        || (reason = read_bytes(&r, &parsed->key, &parsed->key_length, "a negative key length")) != NULL
        || (reason = read_bytes(&r, &parsed->value, &parsed->value_length, "a negative value length")) != NULL
        || (reason = read_varint(&r, &headers)) != NULL)
        return reason;
    parsed->headers = r.position;
    parsed->header_count = (int32_t)headers;
    if (headers != 0 && (reason = check_headers(&r, headers)) != NULL)
        return reason;
    parsed->headers_end = r.position;
    if (r.position != r.end)
        return "a length that does not match its fields";
    if (delta < 0 || delta > self->last_offset - self->base_offset)
        return "an offset outside its batch";
    parsed->offset = self->base_offset + delta;
    parsed->timestamp = self->base_timestamp;
    if (!self->append_time && __builtin_add_overflow(self->base_timestamp, timestamp, &parsed->timestamp))
        return "a timestamp out of range";
    parsed->timestamp_type = self->timestamp_type;
    self->next_record = r.end;
    return NULL;
}

#endif
