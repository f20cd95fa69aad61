/* The CRC-32C of long inputs by folding.

   A CRC is a remainder. So a block may be multiplied by a power of x, and then be added to a later block. The power
   depends on the distance of the two blocks. Sixteen blocks of 16 bytes are folded onto the following ones. The result
   has the size of these sixteen blocks.

   The bits are mirrored, as in the checksum. So a product is one bit too low, which the shift of the factors
   corrects. */

#include "folding.h"

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : defined(__GNUC__) && __GNUC__ >= 10)

#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,vpclmulqdq")))

static uint64_t first_factor, second_factor; /* for the two halves of a block */

/* Returns x to a power, mirrored. */
static uint32_t power(uint32_t polynomial, int exponent)
{
    uint32_t result = 0x80000000u;
    for (; exponent > 0; exponent--)
        result = (result >> 1) ^ (polynomial & (0u - (result & 1)));
    return result;
}

int folding_prepare(uint32_t polynomial)
{
    first_factor = (uint64_t)power(polynomial, 8 * FOLDED_SIZE + 32) << 1;
    second_factor = (uint64_t)power(polynomial, 8 * FOLDED_SIZE - 32) << 1;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

static WIDE inline __m512i fold_block(__m512i block, __m512i factors, const uint8_t *data)
{
    __m512i first = _mm512_clmulepi64_epi128(block, factors, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(block, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, _mm512_loadu_si512(data), 0x96); /* exclusive or */
}

WIDE size_t fold(uint32_t crc, const uint8_t *data, size_t length, uint8_t folded[FOLDED_SIZE])
{
    const __m512i factors = _mm512_broadcast_i32x4(_mm_set_epi64x((long long)second_factor, (long long)first_factor));
    const uint8_t *start = data;
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i b = _mm512_loadu_si512(data + 64), c = _mm512_loadu_si512(data + 128), d = _mm512_loadu_si512(data + 192);
    for (data += FOLDED_SIZE, length -= FOLDED_SIZE; length >= FOLDED_SIZE;
         data += FOLDED_SIZE, length -= FOLDED_SIZE) {
        a = fold_block(a, factors, data);
        b = fold_block(b, factors, data + 64);
        c = fold_block(c, factors, data + 128);
        d = fold_block(d, factors, data + 192);
    }
    _mm512_storeu_si512(folded, a);
    _mm512_storeu_si512(folded + 64, b);
    _mm512_storeu_si512(folded + 128, c);
    _mm512_storeu_si512(folded + 192, d);
    return (size_t)(data - start);
}

#else

int folding_prepare(uint32_t polynomial) { return 0; }

size_t fold(uint32_t crc, const uint8_t *data, size_t length, uint8_t folded[FOLDED_SIZE]) { return 0; }

#endif
