// AVX2 with the AVX-VNNI dot product.
#pragma once

#include "kernels/simd/ymm.h"

namespace {

constexpr int kFloatRows = 4, kFloatSums = 4, kAttnRows = 6, kAttnSums = 12;
template <class L> constexpr int kGemmRows = 16;
template <int kBits> constexpr int kDotRows = 4;

// Integers in the mantissa of 1.5 * 2^23: adding to the bits adds to the number, as long as it stays within 2^22.
constexpr int32_t kBiasBits = 0x4b400000;
constexpr float kBias = 0x1.8p23f;

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  __m256i low[kRows], high[kRows];
  each<kRows>([&](auto r) { low[r.value] = high[r.value] = _mm256_set1_epi32(kBiasBits); });
  each<Codes::kQuads>([&](auto j) {
    const B w = codes.template quad<j.value>();
    each<kRows>([&](auto r) {
      const __m256i quad = spread_quad(a + 32 * r.value + 4 * j.value);
      low[r.value] = _mm256_dpbusd_avx_epi32(low[r.value], w.v[0], quad);
      high[r.value] = _mm256_dpbusd_avx_epi32(high[r.value], w.v[1], quad);
    });
  });
  alignas(16) float zeros[4] = {kBias, kBias, kBias, kBias};
  if constexpr (Codes::kZero != 0) zero_points<Codes::kZero, kRows>(kBias, sums, zeros);
  each<kRows>([&](auto r) {
    const F biased = {{_mm256_castsi256_ps(low[r.value]), _mm256_castsi256_ps(high[r.value])}};
    isum[r.value] = f_sub(biased, f_set(zeros[r.value]));
  });
}

}  // namespace
