// AVX-512 F, BW, VL, DQ and VNNI. Same names and bits as scalar.h.
#pragma once

#include "kernels/simd/zmm.h"

namespace {

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  vnni_rows<kRows>(codes, a, sums, isum);
}

}  // namespace
