// AArch64 with the dot product instructions.
#pragma once

#include "kernels/simd/neon_sdot.h"

namespace {

template <int kBits> constexpr int kDotRows = 4;

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  sdot_rows<kRows>(codes, a, sums, isum);
}

}  // namespace
