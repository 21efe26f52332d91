// AArch64 with the matrix multiply instructions too: two rows of eight activations against two lanes of eight codes.
#pragma once

#include "kernels/simd/neon_sdot.h"

namespace {

template <int kBits> constexpr int kDotRows = 4;

// Two 32-bit quads of 16 bytes, alternating: [2 lanes][8 codes] of kHalf's lanes.
template <int kHalf> inline int8x16_t zip_quads(int8x16_t a, int8x16_t b) {
  const int32x4_t x = vreinterpretq_s32_s8(a), y = vreinterpretq_s32_s8(b);
  return vreinterpretq_s8_s32(kHalf ? vzip2q_s32(x, y) : vzip1q_s32(x, y));
}

template <int kRows, class Codes> inline void smmla_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  constexpr int kBits = Codes::kBits, kPairs = kRows / 2;
  static_assert(kRows % 2 == 0 && (kBits != 8 || Codes::kZero == 128));
  int32x4_t s[kPairs][4][2];  // [2 lanes][2 rows] each
  each<kPairs>([&](auto r) {
    const int32_t zero = kBits == 8 ? 0 : -Codes::kZero;
    const int32x2_t start = {zero * sums[2 * r.value], zero * sums[2 * r.value + 1]};
    each<4>([&](auto h) { s[r.value][h.value][0] = s[r.value][h.value][1] = vcombine_s32(start, start); });
  });
  each<Codes::kQuads / 2>([&](auto j) {
    const B even = codes.template quad<2 * j.value>(), odd = codes.template quad<2 * j.value + 1>();
    int8x16_t x[kPairs];  // [2 rows][8 activations]
    each<kPairs>([&](auto r) {
      const int8_t* at = a + 64 * r.value + 8 * j.value;
      x[r.value] = vcombine_s8(vld1_s8(at), vld1_s8(at + 32));
    });
    each<4>([&](auto h) {
      const int8x16_t w0 = signed_codes<kBits>(even.v[h.value]), w1 = signed_codes<kBits>(odd.v[h.value]);
      each<2>([&](auto half) {
        const int8x16_t w = zip_quads<half.value>(w0, w1);
        each<kPairs>([&](auto r) {
          int32x4_t& sum = s[r.value][h.value][half.value];
          sum = vmmlaq_s32(sum, w, x[r.value]);
        });
      });
    });
  });
  each<kPairs>([&](auto r) {
    I first, second;
    each<4>([&](auto h) {
      first.v[h.value] = vuzp1q_s32(s[r.value][h.value][0], s[r.value][h.value][1]);
      second.v[h.value] = vuzp2q_s32(s[r.value][h.value][0], s[r.value][h.value][1]);
    });
    isum[2 * r.value] = f_from_i(first);
    isum[2 * r.value + 1] = f_from_i(second);
  });
}

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  if constexpr (kRows == 1)
    sdot_rows<kRows>(codes, a, sums, isum);
  else
    smmla_rows<kRows>(codes, a, sums, isum);
}

}  // namespace
