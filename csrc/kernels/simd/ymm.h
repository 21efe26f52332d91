// The sixteen-lane vector as two ymm: what avx2.h and avxvnni.h share. Same names and bits as scalar.h.
// Lanes 0-7 are in v[0], 8-15 in v[1].
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "kernels/simd/each.h"

namespace {

struct F { __m256 v[2]; };
struct I { __m256i v[2]; };
struct B { __m256i v[2]; };

inline __m256i lane_numbers(int first) { return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first)); }
// All ones in the lanes [first, first + 8) that are below n.
inline __m256i lanes_below(int n, int first) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane_numbers(first)); }

inline F f_zero() { return {{_mm256_setzero_ps(), _mm256_setzero_ps()}}; }
inline F f_set(float x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
inline F f_load(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
inline F f_load_n(const float* p, int n) {
  if (n == 16) return f_load(p);
  return {{_mm256_maskload_ps(p, lanes_below(n, 0)), _mm256_maskload_ps(p + 8, lanes_below(n, 8))}};
}
inline void f_store(float* p, F a) { _mm256_storeu_ps(p, a.v[0]); _mm256_storeu_ps(p + 8, a.v[1]); }
inline void f_store_n(float* p, F a, int n) {
  if (n == 16) return f_store(p, a);
  _mm256_maskstore_ps(p, lanes_below(n, 0), a.v[0]);
  _mm256_maskstore_ps(p + 8, lanes_below(n, 8), a.v[1]);
}
inline F f_add(F a, F b) { return {{_mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1])}}; }
inline F f_sub(F a, F b) { return {{_mm256_sub_ps(a.v[0], b.v[0]), _mm256_sub_ps(a.v[1], b.v[1])}}; }
inline F f_mul(F a, F b) { return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}}; }
inline F f_div(F a, F b) { return {{_mm256_div_ps(a.v[0], b.v[0]), _mm256_div_ps(a.v[1], b.v[1])}}; }
inline F f_fma(F a, F b, F c) { return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}}; }
// maxps and minps return the second operand on NaN and on equal zeros, as `a > b ? a : b` does.
inline F f_max(F a, F b) { return {{_mm256_max_ps(a.v[0], b.v[0]), _mm256_max_ps(a.v[1], b.v[1])}}; }
inline F f_min(F a, F b) { return {{_mm256_min_ps(a.v[0], b.v[0]), _mm256_min_ps(a.v[1], b.v[1])}}; }
inline F f_select_ge(F x, F limit, F a, F b) {
  return {{_mm256_blendv_ps(b.v[0], a.v[0], _mm256_cmp_ps(x.v[0], limit.v[0], _CMP_GE_OQ)),
           _mm256_blendv_ps(b.v[1], a.v[1], _mm256_cmp_ps(x.v[1], limit.v[1], _CMP_GE_OQ))}};
}
inline F f_keep_range(F a, int low, int high, float fill) {
  const __m256 filler = _mm256_set1_ps(fill);
  F r;
  for (int h = 0; h < 2; ++h) {
    const __m256i keep = _mm256_andnot_si256(lanes_below(low, 8 * h), lanes_below(high, 8 * h));
    r.v[h] = _mm256_blendv_ps(filler, a.v[h], _mm256_castsi256_ps(keep));
  }
  return r;
}
inline __m256 sign_bit() { return _mm256_set1_ps(-0.0f); }
inline F f_copysign(F m, F s) {
  return {{_mm256_or_ps(_mm256_andnot_ps(sign_bit(), m.v[0]), _mm256_and_ps(sign_bit(), s.v[0])),
           _mm256_or_ps(_mm256_andnot_ps(sign_bit(), m.v[1]), _mm256_and_ps(sign_bit(), s.v[1]))}};
}
inline F f_abs(F a) { return {{_mm256_andnot_ps(sign_bit(), a.v[0]), _mm256_andnot_ps(sign_bit(), a.v[1])}}; }
inline float f_sqrt_one(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
inline float f_sum(F a) {
  const __m256 h8 = _mm256_add_ps(a.v[0], a.v[1]);
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}
inline float f_largest(F a) {
  const __m256 h8 = _mm256_max_ps(a.v[0], a.v[1]);
  const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_max_ss(h2, _mm_movehdup_ps(h2)));
}

inline I i_zero() { return {{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
inline I i_magnitude(F a) { const F m = f_abs(a); return {{_mm256_castps_si256(m.v[0]), _mm256_castps_si256(m.v[1])}}; }
inline I i_max(I a, I b) { return {{_mm256_max_epi32(a.v[0], b.v[0]), _mm256_max_epi32(a.v[1], b.v[1])}}; }
inline int32_t i_largest(I a) {
  const __m256i h8 = _mm256_max_epi32(a.v[0], a.v[1]);
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(h8), _mm256_extracti128_si256(h8, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
inline int32_t i_sum(I a) {
  const __m256i h8 = _mm256_add_epi32(a.v[0], a.v[1]);
  __m128i h = _mm_add_epi32(_mm256_castsi256_si128(h8), _mm256_extracti128_si256(h8, 1));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
inline I i_round(F a) { return {{_mm256_cvtps_epi32(a.v[0]), _mm256_cvtps_epi32(a.v[1])}}; }
inline void i_store_i8(int8_t* p, I a) {
  const __m256i pairs = _mm256_packs_epi32(a.v[0], a.v[1]);  // quads 0 2 1 3
  const __m256i words = _mm256_permute4x64_epi64(pairs, 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
// The codes of a group, and the sums of its halves.
inline void i_store_codes(int8_t* p, I a, I b, int32_t* sum_a, int32_t* sum_b) {
  i_store_i8(p, a);
  i_store_i8(p + 16, b);
  *sum_a = i_sum(a);
  *sum_b = i_sum(b);
}
inline F f_from_i(I a) { return {{_mm256_cvtepi32_ps(a.v[0]), _mm256_cvtepi32_ps(a.v[1])}}; }
inline __m256 pow2_half(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }
inline F f_pow2(I n) { return {{pow2_half(n.v[0]), pow2_half(n.v[1])}}; }

inline __m128i load_8(const void* p, int at) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(static_cast<const char*>(p) + at)); }
inline __m128i load_16(const void* p, int at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(p) + at)); }
inline __m256 half_from_f16(const void* p, int at) { return _mm256_cvtph_ps(load_16(p, at)); }
inline __m256 half_from_i8(const void* p, int at) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(p, at))); }
inline F f_load_f16(const void* p) { return {{half_from_f16(p, 0), half_from_f16(p, 16)}}; }
inline __m256 bf16_half(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
inline F f_load_bf16(const void* p) { return {{bf16_half(load_16(p, 0)), bf16_half(load_16(p, 16))}}; }
inline F f_load_i8(const void* p) { return {{half_from_i8(p, 0), half_from_i8(p, 8)}}; }
inline F f_load_u8(const void* p) { return f_from_i({{_mm256_cvtepu8_epi32(load_8(p, 0)), _mm256_cvtepu8_epi32(load_8(p, 8))}}); }
inline void f_store_f16(uint16_t* p, F a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v[0], kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.v[1], kNearest));
}

// One of the two registers, for loops that keep as many sums as there are registers.
using P = __m256;
constexpr int kParts = 2;
inline P p_set(float x) { return _mm256_set1_ps(x); }
inline P p_add(P a, P b) { return _mm256_add_ps(a, b); }
inline P p_mul(P a, P b) { return _mm256_mul_ps(a, b); }
inline P p_fma(P a, P b, P c) { return _mm256_fmadd_ps(a, b, c); }
inline P p_load(const float* p) { return _mm256_loadu_ps(p); }
inline P p_load_f16(const void* p) { return half_from_f16(p, 0); }
inline P p_load_i8(const void* p) { return half_from_i8(p, 0); }
inline void p_store(float* p, P a) { _mm256_storeu_ps(p, a); }

inline __m256i load_32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline B b_load(const uint8_t* p) { return {{load_32(p), load_32(p + 32)}}; }
inline void b_store(uint8_t* p, B a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v[0]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.v[1]);
}
inline B b_or(B a, B b) { return {{_mm256_or_si256(a.v[0], b.v[0]), _mm256_or_si256(a.v[1], b.v[1])}}; }
template <int kMask> inline B b_and(B a) {
  const __m256i mask = _mm256_set1_epi8(char(kMask));
  return {{_mm256_and_si256(a.v[0], mask), _mm256_and_si256(a.v[1], mask)}};
}
// Bits that a 16-bit shift carries over from the neighbour byte fall outside kMask.
template <int kShift, int kMask> inline B b_shift_and(B a) {
  static_assert(kShift >= 0 ? (kMask & ((1 << kShift) - 1)) == 0 : (kMask << -kShift) <= 0xff);
  for (int h = 0; h < 2; ++h) {
    if constexpr (kShift > 0) a.v[h] = _mm256_slli_epi16(a.v[h], kShift);
    if constexpr (kShift < 0) a.v[h] = _mm256_srli_epi16(a.v[h], -kShift);
  }
  return b_and<kMask>(a);
}

// Four activations in every lane.
inline __m256i spread_quad(const int8_t* a) { int32_t x; __builtin_memcpy(&x, a, 4); return _mm256_set1_epi32(x); }
// first + kZero * sums[r], for kRows rows, into 16 aligned bytes; small integers, so that every step is exact.
template <int kZero, int kRows> inline void zero_points(float first, const int32_t* sums, float* out) {
  static_assert(kRows == 1 || kRows == 2 || kRows == 4);
  __m128i s;
  if constexpr (kRows == 1) s = _mm_loadu_si32(sums);
  if constexpr (kRows == 2) s = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(sums));
  if constexpr (kRows == 4) s = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sums));
  s = _mm_mullo_epi32(s, _mm_set1_epi32(kZero));
  _mm_store_ps(out, _mm_add_ps(_mm_cvtepi32_ps(s), _mm_set1_ps(first)));
  // To be broadcast from memory: from a register it takes a port that the dot products need.
  __asm__("" : "+m"(*reinterpret_cast<float(*)[4]>(out)));
}
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
