// What AArch64 CPUs with the dot product instructions share: four codes of four lanes against one quad of activations.
#pragma once

#include "kernels/simd/neon_lanes.h"

namespace {

template <int kRows, class Codes> inline void sdot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  constexpr int kBits = Codes::kBits;
  static_assert(kBits != 8 || Codes::kZero == 128);
  I s[kRows];
  each<kRows>([&](auto r) {
    const int32x4_t start = vdupq_n_s32(kBits == 8 ? 0 : -Codes::kZero * sums[r.value]);
    each<4>([&](auto h) { s[r.value].v[h.value] = start; });
  });
  int8x16_t x[kRows];
  each<Codes::kQuads>([&](auto j) {
    const B w = codes.template quad<j.value>();
    each<kRows>([&](auto r) {
      if constexpr (j.value % 4 == 0) x[r.value] = vld1q_s8(a + 32 * r.value + 4 * j.value);
      each<4>([&](auto h) {
        int32x4_t& sum = s[r.value].v[h.value];
        sum = vdotq_laneq_s32(sum, signed_codes<kBits>(w.v[h.value]), x[r.value], j.value % 4);
      });
    });
  });
  each<kRows>([&](auto r) { isum[r.value] = f_from_i(s[r.value]); });
}

}  // namespace
