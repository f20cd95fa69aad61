/* A cursor over untrusted bytes. Each read checks that its bytes exist.

   A function that can fail returns NULL on success, and the reason as text on failure. */

#ifndef ASYNCCONSUMER_READER_H
#define ASYNCCONSUMER_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define REASON_CUT_OFF "a field that is cut off"
#define REASON_LONG_VARINT "a varint longer than its type allows"

typedef const char *Reason;

typedef struct {
    const uint8_t *position, *end;
} Reader;

static inline int64_t bytes_left(const Reader *r) { return r->end - r->position; }

static inline uint16_t be16(const uint8_t *data) { return (uint16_t)(data[0] << 8 | data[1]); }

static inline uint32_t be32(const uint8_t *data)
{
    uint32_t value;
    memcpy(&value, data, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}

static inline uint64_t be64(const uint8_t *data) { return (uint64_t)be32(data) << 32 | be32(data + 4); }

/* Most numbers in the protocol are signed. */
static inline int16_t int16_at(const uint8_t *data) { return (int16_t)be16(data); }
static inline int32_t int32_at(const uint8_t *data) { return (int32_t)be32(data); }
static inline int64_t int64_at(const uint8_t *data) { return (int64_t)be64(data); }

/* `bits` is the size of the type, 32 or 64. It is a constant, so that the compiler removes branches. */
static inline Reason read_unsigned_varint(Reader *r, int bits, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (r->position >= r->end)
            return REASON_CUT_OFF;
        uint64_t byte = *r->position++;
        if (shift + 7 > bits && byte >> (bits - shift))
            return REASON_LONG_VARINT;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return NULL;
        }
    }
    return REASON_LONG_VARINT;
}

static inline int64_t unzigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* Reads a varint of one or two bytes. Nearly all varints are that short. */
static inline bool read_short_varint(Reader *r, int64_t *out)
{
    if (r->end - r->position < 2)
        return false;
    uint32_t first = r->position[0], second = r->position[1];
    if (first < 0x80) {
        *out = unzigzag(first);
        r->position += 1;
        return true;
    }
    if (second < 0x80) {
        *out = unzigzag((first & 0x7F) | second << 7);
        r->position += 2;
        return true;
    }
    return false;
}

static inline Reason read_varint_of(Reader *r, int bits, int64_t *out)
{
    uint64_t value;
    if (read_short_varint(r, out))
        return NULL;
    Reason reason = read_unsigned_varint(r, bits, &value);
    if (reason == NULL)
        *out = unzigzag(value);
    return reason;
}

static inline Reason read_varint(Reader *r, int64_t *out) { return read_varint_of(r, 32, out); }
static inline Reason read_varlong(Reader *r, int64_t *out) { return read_varint_of(r, 64, out); }

#endif
