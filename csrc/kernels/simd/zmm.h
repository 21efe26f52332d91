// The sixteen-lane vector as one zmm, for avx512.h and amx.h: AVX-512 F, BW, VL, DQ and VNNI. Same names and bits as scalar.h.
#pragma once

#pragma GCC diagnostic push
#ifndef __clang__  // GCC 12's own header trips these warnings: GCC bug 105593, fixed in 13
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <stdint.h>

#include "kernels/simd/each.h"

namespace {

constexpr int kFloatRows = 8, kFloatSums = 16, kAttnRows = 8, kAttnSums = 24;
template <class L> constexpr int kGemmRows = L::kTwoLevel ? 8 : 16;  // with two levels, three float sums a row
template <int kBits> constexpr int kDotRows = 16;

struct F { __m512 v; };
struct I { __m512i v; };
struct B { __m512i v; };

inline __mmask16 first_lanes(int n) { return __mmask16((1u << n) - 1); }

inline F f_zero() { return {_mm512_setzero_ps()}; }
inline F f_set(float x) { return {_mm512_set1_ps(x)}; }
inline F f_load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F f_load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void f_store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
inline void f_store_n(float* p, F a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline F f_add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F f_sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F f_mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F f_div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F f_fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// maxps and minps return the second operand on NaN and on equal zeros, as `a > b ? a : b` does.
inline F f_max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F f_min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F f_select_ge(F x, F limit, F a, F b) { return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), b.v, a.v)}; }
inline F f_keep_range(F a, int low, int high, float fill) {
  const __mmask16 keep = __mmask16(first_lanes(high) & ~first_lanes(low));
  return {_mm512_mask_blend_ps(keep, _mm512_set1_ps(fill), a.v)};
}
inline F f_copysign(F magnitude, F sign) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);  // bitwise mask ? magnitude : sign
  return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(mask, _mm512_castps_si512(magnitude.v), _mm512_castps_si512(sign.v), 0xca))};
}
inline F f_abs(F a) { return {_mm512_abs_ps(a.v)}; }
inline float f_sqrt_one(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
inline float f_sum(F a) {
  const __m256 h8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}
inline float f_largest(F a) {
  const __m256 h8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_max_ss(h2, _mm_movehdup_ps(h2)));
}

inline I i_zero() { return {_mm512_setzero_si512()}; }
inline I i_magnitude(F a) { return {_mm512_castps_si512(_mm512_abs_ps(a.v))}; }
inline I i_max(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline int32_t i_largest(I a) { return _mm512_reduce_max_epi32(a.v); }
inline int32_t i_sum(I a) { return _mm512_reduce_add_epi32(a.v); }
inline I i_round(F a) { return {_mm512_cvtps_epi32(a.v)}; }
// The codes of a group, and the sums of its halves.
inline void i_store_codes(int8_t* p, I a, I b, int32_t* sum_a, int32_t* sum_b) {
  const __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(b.v), _mm512_cvtepi32_epi8(a.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), q);
  __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);  // four of a, four of b
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
  *sum_a = _mm256_extract_epi32(s, 0);
  *sum_b = _mm256_extract_epi32(s, 4);
}
inline F f_from_i(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline F f_pow2(I n) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))}; }

inline __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i load_32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline F f_load_f16(const void* p) { return {_mm512_cvtph_ps(load_32(p))}; }
inline F f_load_bf16(const void* p) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(p)), 16))}; }
inline F f_load_i8(const void* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p)))}; }
inline F f_load_u8(const void* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16(p)))}; }
inline void f_store_f16(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline B b_load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline void b_store(uint8_t* p, B a) { _mm512_storeu_si512(p, a.v); }
inline B b_or(B a, B b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kMask> inline B b_and(B a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(char(kMask)))}; }
// Bits that a 16-bit shift carries over from the neighbour byte fall outside kMask.
template <int kShift, int kMask> inline B b_shift_and(B a) {
  static_assert(kShift >= 0 ? (kMask & ((1 << kShift) - 1)) == 0 : (kMask << -kShift) <= 0xff);
  if constexpr (kShift > 0) a.v = _mm512_slli_epi16(a.v, kShift);
  if constexpr (kShift < 0) a.v = _mm512_srli_epi16(a.v, -kShift);
  return b_and<kMask>(a);
}

inline int32_t load_quad(const int8_t* a) { int32_t x; __builtin_memcpy(&x, a, 4); return x; }
// Integers in the mantissa of 1.5 * 2^23: adding to the bits adds to the number, as long as it stays within 2^22.
constexpr int32_t kBiasBits = 0x4b400000;
constexpr float kBias = 0x1.8p23f;

template <int kRows, class Codes> inline void vnni_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  __m512i s[kRows];
  each<kRows>([&](auto r) { s[r.value] = _mm512_set1_epi32(kBiasBits); });
  each<Codes::kQuads>([&](auto j) {
    const B w = codes.template quad<j.value>();
    each<kRows>([&](auto r) {
      s[r.value] = _mm512_dpbusd_epi32(s[r.value], w.v, _mm512_set1_epi32(load_quad(a + 32 * r.value + 4 * j.value)));
    });
  });
  if constexpr (Codes::kZero == 0) {
    each<kRows>([&](auto r) { isum[r.value].v = _mm512_sub_ps(_mm512_castsi512_ps(s[r.value]), _mm512_set1_ps(kBias)); });
  } else {
    alignas(64) float zeros[16];  // bias + kZero * sum: small integers, so that every step is exact
    const __m512i z = _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(first_lanes(kRows), sums), _mm512_set1_epi32(Codes::kZero));
    _mm512_store_ps(zeros, _mm512_add_ps(_mm512_cvtepi32_ps(z), _mm512_set1_ps(kBias)));
    __asm__("" : "+m"(zeros));  // broadcast from memory: from a register it takes a port that the dot products need
    each<kRows>([&](auto r) { isum[r.value].v = _mm512_sub_ps(_mm512_castsi512_ps(s[r.value]), _mm512_set1_ps(zeros[r.value])); });
  }
}
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace

#include "kernels/simd/whole.h"
