/* CRC-32C with three stripes, with folding, or with tables.

   A CRC instruction has a latency of three cycles, and one can start in each cycle. So a single chain uses a third
   of the unit. Long inputs are divided into three stripes that are processed in parallel. To join two results, the
   CRC of the first stripe is shifted over the length of the second one. A shift is linear, and so a lookup in four
   tables of 256 entries. Very long inputs are folded first, if the processor can. */

#include "crc32c.h"

#include "folding.h"

#include <string.h>

#define CASTAGNOLI 0x82F63B78u
#define IEEE 0xEDB88320u

typedef uint32_t Tables[8][256];

static Tables castagnoli_tables, ieee_tables;

static void fill_tables(Tables tables, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1)));
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
}

static uint32_t little_endian_32(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}

/* Eight bytes per step, on any processor. */
static uint32_t update_by_tables(Tables t, uint32_t crc, const uint8_t *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low = crc ^ little_endian_32(data), high = little_endian_32(data + 4);
        crc = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF] ^ t[4][low >> 24]
            ^ t[3][high & 0xFF] ^ t[2][(high >> 8) & 0xFF] ^ t[1][(high >> 16) & 0xFF] ^ t[0][high >> 24];
    }
    for (; length > 0; data++, length--)
        crc = (crc >> 8) ^ t[0][(crc ^ *data) & 0xFF];
    return crc;
}

uint32_t crc32c_portable(const uint8_t *data, size_t length)
{
    return ~update_by_tables(castagnoli_tables, 0xFFFFFFFFu, data, length);
}

uint32_t crc32_of(const uint8_t *data, size_t length)
{
    return ~update_by_tables(ieee_tables, 0xFFFFFFFFu, data, length);
}

#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_8(crc, word) __builtin_ia32_crc32di(crc, word)
#define CRC_1(crc, byte) __builtin_ia32_crc32qi((uint32_t)(crc), byte)
static int has_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))
#ifdef __linux__
#include <sys/auxv.h>
static int has_instruction(void) { return (getauxval(AT_HWCAP) >> 7) & 1; } /* HWCAP_CRC32 */
#else
static int has_instruction(void) { return 1; } /* all 64-bit ARM processors of Apple */
#endif
#define CRC_TARGET __attribute__((target("+crc")))
static CRC_TARGET inline uint64_t CRC_8(uint64_t crc, uint64_t word)
{
    uint32_t out;
    __asm__("crc32cx %w0, %w1, %x2" : "=r"(out) : "r"((uint32_t)crc), "r"(word));
    return out;
}
static CRC_TARGET inline uint64_t CRC_1(uint64_t crc, uint8_t byte)
{
    uint32_t out;
    __asm__("crc32cb %w0, %w1, %w2" : "=r"(out) : "r"((uint32_t)crc), "r"((uint32_t)byte));
    return out;
}
#endif

#ifdef CRC_TARGET

enum { LONG_STRIPE = 2048, SHORT_STRIPE = 128, MIN_LENGTH_TO_FOLD = 4 * FOLDED_SIZE };

typedef uint32_t Shift[4][256];

static Shift long_shift, short_shift;

static inline uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static inline uint32_t shifted(Shift shift, uint64_t crc)
{
    return shift[0][crc & 0xFF] ^ shift[1][(crc >> 8) & 0xFF] ^ shift[2][(crc >> 16) & 0xFF]
         ^ shift[3][(crc >> 24) & 0xFF];
}

static void fill_shift(Shift shift, size_t length)
{
    static const uint8_t zeros[LONG_STRIPE];
    for (int k = 0; k < 4; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            shift[k][byte] = update_by_tables(castagnoli_tables, byte << (8 * k), zeros, length);
}

static CRC_TARGET inline uint64_t three_stripes(Shift shift, uint64_t crc, const uint8_t *data, size_t stripe)
{
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < stripe; i += 8) {
        crc = CRC_8(crc, word_at(data + i));
        second = CRC_8(second, word_at(data + stripe + i));
        third = CRC_8(third, word_at(data + 2 * stripe + i));
    }
    return shifted(shift, shifted(shift, crc) ^ second) ^ third;
}

static CRC_TARGET uint32_t update_by_instruction(uint64_t crc, const uint8_t *data, size_t length)
{
    for (; length >= 3 * LONG_STRIPE; data += 3 * LONG_STRIPE, length -= 3 * LONG_STRIPE)
        crc = three_stripes(long_shift, crc, data, LONG_STRIPE);
    for (; length >= 3 * SHORT_STRIPE; data += 3 * SHORT_STRIPE, length -= 3 * SHORT_STRIPE)
        crc = three_stripes(short_shift, crc, data, SHORT_STRIPE);
    for (; length >= 8; data += 8, length -= 8)
        crc = CRC_8(crc, word_at(data));
    for (; length > 0; data++, length--)
        crc = CRC_1(crc, *data);
    return (uint32_t)crc;
}

static uint32_t crc32c_by_instruction(const uint8_t *data, size_t length)
{
    return ~update_by_instruction(0xFFFFFFFFu, data, length);
}

static uint32_t crc32c_by_folding(const uint8_t *data, size_t length)
{
    uint8_t folded[FOLDED_SIZE];
    if (length < MIN_LENGTH_TO_FOLD)
        return crc32c_by_instruction(data, length);
    size_t folded_length = fold(0xFFFFFFFFu, data, length, folded);
    uint32_t crc = update_by_instruction(0, folded, FOLDED_SIZE);
    return ~update_by_instruction(crc, data + folded_length, length - folded_length);
}

#endif

typedef uint32_t (*Checksum)(const uint8_t *, size_t);

static Checksum fastest = crc32c_portable, without_folding = crc32c_portable;

void checksums_prepare(void)
{
    fill_tables(castagnoli_tables, CASTAGNOLI);
    fill_tables(ieee_tables, IEEE);
#ifdef CRC_TARGET
    if (has_instruction()) {
        fill_shift(long_shift, LONG_STRIPE);
        fill_shift(short_shift, SHORT_STRIPE);
        fastest = without_folding = crc32c_by_instruction;
        if (folding_prepare(CASTAGNOLI))
            fastest = crc32c_by_folding;
    }
#endif
}

uint32_t crc32c_of(const uint8_t *data, size_t length) { return fastest(data, length); }

uint32_t crc32c_unfolded(const uint8_t *data, size_t length) { return without_folding(data, length); }
