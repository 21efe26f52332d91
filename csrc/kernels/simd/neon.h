// Plain AArch64: the dot product is widening multiplies, summed inside 16 bits, then pairwise to 32.
#pragma once

#include "kernels/simd/neon_lanes.h"

namespace {

// How many products of a code and an activation, |a| <= 127, fit 16 bits.
template <int kBits> constexpr int kSafeTerms = 32767 / ((kBits == 8 ? 128 : (1 << kBits) - 1) * 127);
static_assert(kSafeTerms<4> >= 8 && kSafeTerms<5> >= 8 && kSafeTerms<6> == 4 && kSafeTerms<8> == 2);

template <int kBits> constexpr int kDotRows = 2;

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  constexpr int kBits = Codes::kBits;
  static_assert(kBits != 8 || Codes::kZero == 128);
  constexpr int kTerms = kSafeTerms<kBits> < Codes::kQuads ? kSafeTerms<kBits> : Codes::kQuads;
  I total[kRows];
  each<kRows>([&](auto r) {
    const int32x4_t start = vdupq_n_s32(kBits == 8 ? 0 : -Codes::kZero * sums[r.value]);
    each<4>([&](auto h) { total[r.value].v[h.value] = start; });
  });
  each<Codes::kQuads / kTerms>([&](auto p) {
    int16x8_t low[kRows][4], high[kRows][4];  // [2 lanes][4 codes] each
    each<kTerms>([&](auto t) {
      constexpr int kQuad = p.value * kTerms + t.value;
      const B w = codes.template quad<kQuad>();
      each<kRows>([&](auto r) {
        int32_t quad;
        __builtin_memcpy(&quad, a + 32 * r.value + 4 * kQuad, 4);
        const int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(quad));
        each<4>([&](auto h) {
          int16x8_t &l = low[r.value][h.value], &u = high[r.value][h.value];
          const int8x16_t s = signed_codes<kBits>(w.v[h.value]);
          l = t.value == 0 ? vmull_s8(vget_low_s8(s), x) : vmlal_s8(l, vget_low_s8(s), x);
          u = t.value == 0 ? vmull_s8(vget_high_s8(s), x) : vmlal_s8(u, vget_high_s8(s), x);
        });
      });
    });
    each<kRows>([&](auto r) {
      each<4>([&](auto h) {
        const int32x4_t lanes = vpaddq_s32(vpaddlq_s16(low[r.value][h.value]), vpaddlq_s16(high[r.value][h.value]));
        total[r.value].v[h.value] = vaddq_s32(total[r.value].v[h.value], lanes);
      });
    });
  });
  each<kRows>([&](auto r) { isum[r.value] = f_from_i(total[r.value]); });
}

}  // namespace
