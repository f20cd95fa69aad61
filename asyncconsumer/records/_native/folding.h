/* Long inputs of a CRC-32C, sixty-four bytes at a time, where the processor can multiply so many. */

#ifndef ASYNCCONSUMER_FOLDING_H
#define ASYNCCONSUMER_FOLDING_H

#include <stddef.h>
#include <stdint.h>

enum { FOLDED = 256 }; /* bytes that stand for all that was folded */

/* Whether this processor can; tells how `fold` is to multiply. Call once, before it. */
int folding_prepare(uint32_t polynomial);

/* Folds as much as it can of at least FOLDED bytes, and tells how much: the CRC of `folded`, begun with
   zero, is that of what was folded, begun with `crc`. */
size_t fold(uint32_t crc, const uint8_t *at, size_t length, uint8_t folded[FOLDED]);

#endif
