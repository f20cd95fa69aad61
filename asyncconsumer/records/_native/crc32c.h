/* Checksums of record batches: CRC-32C for magic 2, CRC-32 for older message sets. */

#ifndef ASYNCCONSUMER_CRC32C_H
#define ASYNCCONSUMER_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Fills the tables and selects the fastest method of this processor. Must be called before the other functions. */
void checksums_prepare(void);

uint32_t crc32c_of(const uint8_t *data, size_t length);
uint32_t crc32c_unfolded(const uint8_t *data, size_t length); /* the method for processors that cannot fold */
uint32_t crc32c_portable(const uint8_t *data, size_t length); /* the method for processors without a CRC instruction */
uint32_t crc32_of(const uint8_t *data, size_t length);

#endif
