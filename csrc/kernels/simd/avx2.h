// AVX2, FMA and F16C. The dot product is maddubs (u8 x s8 pairs to s16) with sums kept inside 16 bits, then madd to 32.
#pragma once

#include "kernels/simd/ymm.h"

namespace {

constexpr int kGemmRows = 4, kGemmRowsTwoLevel = 2, kFloatRows = 2, kAttnRows = 4;

// How many maddubs of u * a, |a| <= 127, fit 16 bits: each adds at most 2 * (2^bits - 1) * 127.
template <int kBits> constexpr int kSafeTerms = 32767 / (2 * ((1 << kBits) - 1) * 127);
static_assert(kSafeTerms<4> == 8 && kSafeTerms<5> == 4 && kSafeTerms<6> == 2);

template <int kBits, int kZero, int kQuads> inline I dot(const B* w, const int8_t* a, int32_t sum_a) {
  const __m256i ones = _mm256_set1_epi16(1);
  // Eight bits do not fit even once; |u - 128| <= 128 and a sign moved over to a do: 2 * 128 * 127 = 32512.
  constexpr bool kSigned = kBits == 8;
  static_assert(!kSigned || kZero == 128);
  constexpr int kTerms = kSigned ? 1 : kSafeTerms<kBits> < kQuads ? kSafeTerms<kBits> : kQuads;
  I sum;
  for (int h = 0; h < 2; ++h) {
    __m256i total = kZero && !kSigned ? _mm256_set1_epi32(-kZero * sum_a) : _mm256_setzero_si256();
    for (int j = 0; j < kQuads; j += kTerms) {
      __m256i part = _mm256_setzero_si256();
      for (int t = j; t < j + kTerms; ++t) {
        const __m256i quad = spread_quad(a + 4 * t);
        __m256i term;
        if constexpr (kSigned) {
          const __m256i s = _mm256_xor_si256(w[t].v[h], _mm256_set1_epi8(char(0x80)));
          term = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(quad, s));
        } else {
          term = _mm256_maddubs_epi16(w[t].v[h], quad);
        }
        part = t == j ? term : _mm256_add_epi16(part, term);
      }
      total = _mm256_add_epi32(total, _mm256_madd_epi16(part, ones));
    }
    sum.v[h] = total;
  }
  return sum;
}

}  // namespace
