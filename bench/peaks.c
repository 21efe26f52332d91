/* What the hardware can do at most, for bench/kernels.py: loops that do nothing but the instruction in question. */
#include <immintrin.h>
#include <stdint.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define VNNI __attribute__((target("avx2,fma,avxvnni")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* Ten independent chains hide the latency on two ports; the empty asm keeps each value in a register, unknown. */
#define CHAINS 10
#define KEEP(x) __asm__ volatile("" : "+x"(x))
#define KEEPZ(x) __asm__ volatile("" : "+v"(x))
#define LOOP(type, zero, keep, step, result)                \
  type acc[CHAINS], a = zero, b = zero;                     \
  _Pragma("GCC unroll 10") for (int i = 0; i < CHAINS; ++i) acc[i] = zero; \
  keep(a);                                                  \
  keep(b);                                                  \
  for (int64_t r = 0; r < rounds; ++r) {                    \
    _Pragma("GCC unroll 10") for (int i = 0; i < CHAINS; ++i) { \
      acc[i] = step;                                        \
      keep(acc[i]);                                         \
    }                                                       \
  }                                                         \
  return rounds * CHAINS * (result);

/* Each returns how many operations it did; a multiply and an add are two. */
AVX512 int64_t int8_avx512(int64_t rounds) { LOOP(__m512i, _mm512_setzero_si512(), KEEPZ, _mm512_dpbusd_epi32(acc[i], a, b), 128) }
VNNI int64_t int8_avxvnni(int64_t rounds) { LOOP(__m256i, _mm256_setzero_si256(), KEEP, _mm256_dpbusd_avx_epi32(acc[i], a, b), 64) }
/* The product does not depend on the chain: unless `a` is new each time, the compiler makes it once for all. */
AVX2 int64_t int8_avx2(int64_t rounds) {
  LOOP(__m256i, _mm256_setzero_si256(), KEEP, ({ KEEP(a); _mm256_add_epi16(acc[i], _mm256_maddubs_epi16(a, b)); }), 64)
}
AVX512 int64_t float_avx512(int64_t rounds) { LOOP(__m512, _mm512_setzero_ps(), KEEPZ, _mm512_fmadd_ps(a, b, acc[i]), 32) }
AVX2 int64_t float_avx2(int64_t rounds) { LOOP(__m256, _mm256_setzero_ps(), KEEP, _mm256_fmadd_ps(a, b, acc[i]), 16) }

/* Four tiles of sums; the process must have asked Linux for tiles. */
#define TILES(product, k)                                                                                                            \
  static const struct { uint8_t palette, start, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } shapes                     \
      __attribute__((aligned(64))) = {1, 0, {0}, {64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16}};                                 \
  __asm__ volatile("ldtilecfg %0" : : "m"(shapes));                                                                                  \
  for (int64_t r = 0; r < rounds / 16; ++r)                                                                                          \
    __asm__ volatile(product " %tmm5, %tmm4, %tmm0\n" product " %tmm5, %tmm4, %tmm1\n" product " %tmm5, %tmm4, %tmm2\n" product    \
                             " %tmm5, %tmm4, %tmm3");                                                                                \
  __asm__ volatile("tilerelease");                                                                                                   \
  return rounds / 16 * 4 * 16 * 16 * (k) * 2;
int64_t int8_amx(int64_t rounds) { TILES("tdpbsud", 64) }
int64_t bf16_amx(int64_t rounds) { TILES("tdpbf16ps", 32) }

/* Reads `bytes`, a multiple of 256, as a stream, prefetching `ahead` bytes. */
AVX2 int64_t read_stream(const uint8_t* p, int64_t bytes, int64_t ahead) {
  __m256i acc[8];
  for (int i = 0; i < 8; ++i) acc[i] = _mm256_setzero_si256();
  for (int64_t at = 0; at < bytes; at += 256) {
    if (ahead)
      for (int i = 0; i < 4; ++i) _mm_prefetch((const char*)p + at + ahead + 64 * i, _MM_HINT_T0);
    for (int i = 0; i < 8; ++i) acc[i] = _mm256_xor_si256(acc[i], _mm256_loadu_si256((const __m256i*)(p + at + 32 * i)));
  }
  for (int i = 1; i < 8; ++i) acc[0] = _mm256_xor_si256(acc[0], acc[i]);
  return _mm256_extract_epi64(acc[0], 0) & 1;
}
