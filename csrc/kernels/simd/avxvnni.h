// AVX2 with the AVX-VNNI dot product.
#pragma once

#include "kernels/simd/ymm.h"

namespace {

constexpr int kGemmRows = 4, kGemmRowsTwoLevel = 2, kFloatRows = 2, kAttnRows = 4;

template <int kBits, int kZero, int kQuads> inline I dot(const B* w, const int8_t* a, int32_t sum_a) {
  const __m256i start = kZero ? _mm256_set1_epi32(-kZero * sum_a) : _mm256_setzero_si256();
  I sum = {{start, start}};
  for (int j = 0; j < kQuads; ++j) {
    const __m256i quad = spread_quad(a + 4 * j);
    sum.v[0] = _mm256_dpbusd_avx_epi32(sum.v[0], w[j].v[0], quad);
    sum.v[1] = _mm256_dpbusd_avx_epi32(sum.v[1], w[j].v[1], quad);
  }
  return sum;
}

}  // namespace
