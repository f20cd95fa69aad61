/* CRC-32C of long inputs, 64 bytes per instruction, on processors with AVX-512 and wide carry-less multiplication. */

#ifndef ASYNCCONSUMER_FOLDING_H
#define ASYNCCONSUMER_FOLDING_H

#include <stddef.h>
#include <stdint.h>

enum { FOLDED_SIZE = 256 }; /* size of the result of `fold` */

/* Returns whether this processor has the instructions. Must be called before `fold`. */
int folding_prepare(uint32_t polynomial);

/* Folds as much as possible of FOLDED or more bytes, and returns the number of folded bytes. Their CRC with the
   initial value `crc` equals the CRC of `folded` with the initial value 0. */
size_t fold(uint32_t crc, const uint8_t *data, size_t length, uint8_t folded[FOLDED_SIZE]);

#endif
