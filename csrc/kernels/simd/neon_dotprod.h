// AArch64 with the dot product instructions: four codes of four lanes against one quad of activations.
#pragma once

#include "kernels/simd/neon_lanes.h"

namespace {

template <int kBits, int kZero, int kQuads> inline I dot(const B* w, const int8_t* a, int32_t sum_a) {
  static_assert((kBits != 8 || kZero == 128) && kQuads % 4 == 0);
  const int32x4_t start = vdupq_n_s32(kBits == 8 ? 0 : -kZero * sum_a);
  I sum = {{start, start, start, start}};
  for (int j = 0; j < kQuads; j += 4) {
    const int8x16_t x = vld1q_s8(a + 4 * j);
    for (int h = 0; h < 4; ++h) {
      int32x4_t s = sum.v[h];
      s = vdotq_laneq_s32(s, signed_codes<kBits>(w[j].v[h]), x, 0);
      s = vdotq_laneq_s32(s, signed_codes<kBits>(w[j + 1].v[h]), x, 1);
      s = vdotq_laneq_s32(s, signed_codes<kBits>(w[j + 2].v[h]), x, 2);
      s = vdotq_laneq_s32(s, signed_codes<kBits>(w[j + 3].v[h]), x, 3);
      sum.v[h] = s;
    }
  }
  return sum;
}

}  // namespace
