/* A CRC is a remainder, so what is a certain distance before the end may be replaced by its product with
   the power of x that belongs to that distance, added to what is there. Sixteen lanes of sixteen bytes
   are carried forward over each other like this, and what is left at the end is as long as they are.

   Bits are mirrored, as the checksum has them: a product comes out one place too low, hence the shift. */

#include "folding.h"

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : defined(__GNUC__) && __GNUC__ >= 10)

#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,vpclmulqdq")))

static uint64_t first_half, second_half; /* what to multiply the halves of a lane by */

/* x to a power, mirrored. */
static uint32_t power(uint32_t polynomial, int exponent)
{
    uint32_t found = 0x80000000u;
    for (; exponent > 0; exponent--)
        found = (found >> 1) ^ (polynomial & (0u - (found & 1)));
    return found;
}

int folding_prepare(uint32_t polynomial)
{
    first_half = (uint64_t)power(polynomial, 8 * FOLDED_SIZE + 32) << 1;
    second_half = (uint64_t)power(polynomial, 8 * FOLDED_SIZE - 32) << 1;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

static WIDE inline __m512i carried(__m512i lanes, __m512i by, const uint8_t *onto)
{
    __m512i first = _mm512_clmulepi64_epi128(lanes, by, 0x00), second = _mm512_clmulepi64_epi128(lanes, by, 0x11);
    return _mm512_ternarylogic_epi64(first, second, _mm512_loadu_si512(onto), 0x96); /* exclusive or */
}

WIDE size_t fold(uint32_t crc, const uint8_t *at, size_t length, uint8_t folded[FOLDED_SIZE])
{
    const __m512i by = _mm512_broadcast_i32x4(_mm_set_epi64x((long long)second_half, (long long)first_half));
    const uint8_t *begin = at;
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i b = _mm512_loadu_si512(at + 64), c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
    for (at += FOLDED_SIZE, length -= FOLDED_SIZE; length >= FOLDED_SIZE; at += FOLDED_SIZE, length -= FOLDED_SIZE) {
        a = carried(a, by, at);
        b = carried(b, by, at + 64);
        c = carried(c, by, at + 128);
        d = carried(d, by, at + 192);
    }
    _mm512_storeu_si512(folded, a);
    _mm512_storeu_si512(folded + 64, b);
    _mm512_storeu_si512(folded + 128, c);
    _mm512_storeu_si512(folded + 192, d);
    return (size_t)(at - begin);
}

#else

int folding_prepare(uint32_t polynomial) { return 0; }

size_t fold(uint32_t crc, const uint8_t *at, size_t length, uint8_t folded[FOLDED_SIZE]) { return 0; }

#endif
