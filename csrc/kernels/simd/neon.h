// Plain AArch64: the dot product is widening multiplies, summed inside 16 bits, then pairwise to 32.
#pragma once

#include "kernels/simd/neon_lanes.h"

namespace {

// How many products of a code and an activation, |a| <= 127, fit 16 bits.
template <int kBits> constexpr int kSafeTerms = 32767 / ((kBits == 8 ? 128 : (1 << kBits) - 1) * 127);
static_assert(kSafeTerms<4> >= 8 && kSafeTerms<5> >= 8 && kSafeTerms<6> == 4 && kSafeTerms<8> == 2);

template <int kBits, int kZero, int kQuads> inline I dot(const B* w, const int8_t* a, int32_t sum_a) {
  static_assert(kBits != 8 || kZero == 128);
  constexpr int kTerms = kSafeTerms<kBits> < kQuads ? kSafeTerms<kBits> : kQuads;
  I sum;
  for (int h = 0; h < 4; ++h) {
    int32x4_t total = vdupq_n_s32(kBits == 8 ? 0 : -kZero * sum_a);
    for (int j = 0; j < kQuads; j += kTerms) {
      int16x8_t low = vdupq_n_s16(0), high = vdupq_n_s16(0);  // [2 lanes][4 codes] each
      for (int t = j; t < j + kTerms; ++t) {
        int32_t quad;
        __builtin_memcpy(&quad, a + 4 * t, 4);
        const int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(quad));
        const int8x16_t u = signed_codes<kBits>(w[t].v[h]);
        low = vmlal_s8(low, vget_low_s8(u), x);
        high = vmlal_s8(high, vget_high_s8(u), x);
      }
      total = vaddq_s32(total, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
    }
    sum.v[h] = total;
  }
  return sum;
}

}  // namespace
