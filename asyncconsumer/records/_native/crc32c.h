/* Checksums of record batches: CRC-32C for magic 2, plain CRC-32 for the older message sets. */

#ifndef ASYNCCONSUMER_CRC32C_H
#define ASYNCCONSUMER_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Fills the tables and picks the fastest way this processor has. Call once, before the others. */
void checksums_prepare(void);

uint32_t crc32c_of(const uint8_t *at, size_t length);
uint32_t crc32c_unfolded(const uint8_t *at, size_t length); /* what runs where nothing can be folded */
uint32_t crc32c_portable(const uint8_t *at, size_t length); /* what runs where there is no instruction */
uint32_t crc32_of(const uint8_t *at, size_t length);

#endif
