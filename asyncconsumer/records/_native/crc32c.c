/* One CRC instruction has a latency of three cycles and a throughput of one, so a single chain of
   them leaves two thirds of the unit idle. Long inputs are therefore cut in three lanes that run
   side by side; lane results are joined by "shifting" a CRC over the length of the lanes behind it,
   which is linear and so a lookup in four tables of 256. Very long ones are folded first, where the
   processor can. */

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

static uint32_t little_endian_32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Eight bytes a step, on any processor. */
static uint32_t update_by_tables(Tables t, uint32_t crc, const uint8_t *at, size_t length)
{
    for (; length >= 8; at += 8, length -= 8) {
        uint32_t low = crc ^ little_endian_32(at), high = little_endian_32(at + 4);
        crc = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF] ^ t[4][low >> 24]
            ^ t[3][high & 0xFF] ^ t[2][(high >> 8) & 0xFF] ^ t[1][(high >> 16) & 0xFF] ^ t[0][high >> 24];
    }
    for (; length > 0; at++, length--)
        crc = (crc >> 8) ^ t[0][(crc ^ *at) & 0xFF];
    return crc;
}

uint32_t crc32c_portable(const uint8_t *at, size_t length)
{
    return ~update_by_tables(castagnoli_tables, 0xFFFFFFFFu, at, length);
}

uint32_t crc32_of(const uint8_t *at, size_t length)
{
    return ~update_by_tables(ieee_tables, 0xFFFFFFFFu, at, length);
}

#if defined(__x86_64__) && defined(__GNUC__)
#define LANES_WITH __attribute__((target("sse4.2")))
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
static int has_instruction(void) { return 1; } /* every 64-bit ARM of Apple's */
#endif
#define LANES_WITH __attribute__((target("+crc")))
static LANES_WITH inline uint64_t CRC_8(uint64_t crc, uint64_t word)
{
    uint32_t out;
    __asm__("crc32cx %w0, %w1, %x2" : "=r"(out) : "r"((uint32_t)crc), "r"(word));
    return out;
}
static LANES_WITH inline uint64_t CRC_1(uint64_t crc, uint8_t byte)
{
    uint32_t out;
    __asm__("crc32cb %w0, %w1, %w2" : "=r"(out) : "r"((uint32_t)crc), "r"((uint32_t)byte));
    return out;
}
#endif

#ifdef LANES_WITH

enum { LONG_LANE = 2048, SHORT_LANE = 128, MIN_LENGTH_TO_FOLD = 4 * FOLDED_SIZE };

typedef uint32_t Shift[4][256];

static Shift over_long_lane, over_short_lane;

static inline uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline uint32_t shifted(Shift shift, uint64_t crc)
{
    return shift[0][crc & 0xFF] ^ shift[1][(crc >> 8) & 0xFF] ^ shift[2][(crc >> 16) & 0xFF]
         ^ shift[3][(crc >> 24) & 0xFF];
}

static void fill_shift(Shift shift, size_t length)
{
    static const uint8_t zeros[LONG_LANE];
    for (int k = 0; k < 4; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            shift[k][byte] = update_by_tables(castagnoli_tables, byte << (8 * k), zeros, length);
}

static LANES_WITH inline uint64_t three_lanes(Shift shift, uint64_t crc, const uint8_t *at, size_t lane)
{
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < lane; i += 8) {
        crc = CRC_8(crc, word_at(at + i));
        second = CRC_8(second, word_at(at + lane + i));
        third = CRC_8(third, word_at(at + 2 * lane + i));
    }
    return shifted(shift, shifted(shift, crc) ^ second) ^ third;
}

static LANES_WITH uint32_t update_by_instruction(uint64_t crc, const uint8_t *at, size_t length)
{
    for (; length >= 3 * LONG_LANE; at += 3 * LONG_LANE, length -= 3 * LONG_LANE)
        crc = three_lanes(over_long_lane, crc, at, LONG_LANE);
    for (; length >= 3 * SHORT_LANE; at += 3 * SHORT_LANE, length -= 3 * SHORT_LANE)
        crc = three_lanes(over_short_lane, crc, at, SHORT_LANE);
    for (; length >= 8; at += 8, length -= 8)
        crc = CRC_8(crc, word_at(at));
    for (; length > 0; at++, length--)
        crc = CRC_1(crc, *at);
    return (uint32_t)crc;
}

static uint32_t crc32c_by_instruction(const uint8_t *at, size_t length)
{
    return ~update_by_instruction(0xFFFFFFFFu, at, length);
}

static uint32_t crc32c_by_folding(const uint8_t *at, size_t length)
{
    uint8_t folded[FOLDED_SIZE];
    if (length < MIN_LENGTH_TO_FOLD)
        return crc32c_by_instruction(at, length);
    size_t taken = fold(0xFFFFFFFFu, at, length, folded);
    uint32_t crc = update_by_instruction(0, folded, FOLDED_SIZE);
    return ~update_by_instruction(crc, at + taken, length - taken);
}

#endif

typedef uint32_t (*Way)(const uint8_t *, size_t);

static Way fastest = crc32c_portable, without_folding = crc32c_portable;

void checksums_prepare(void)
{
    fill_tables(castagnoli_tables, CASTAGNOLI);
    fill_tables(ieee_tables, IEEE);
#ifdef LANES_WITH
    if (has_instruction()) {
        fill_shift(over_long_lane, LONG_LANE);
        fill_shift(over_short_lane, SHORT_LANE);
        fastest = without_folding = crc32c_by_instruction;
        if (folding_prepare(CASTAGNOLI))
            fastest = crc32c_by_folding;
    }
#endif
}

uint32_t crc32c_of(const uint8_t *at, size_t length) { return fastest(at, length); }

uint32_t crc32c_unfolded(const uint8_t *at, size_t length) { return without_folding(at, length); }
