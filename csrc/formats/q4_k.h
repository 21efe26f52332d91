#pragma once
#include "formats/k_scales.h"
namespace pyrt::formats {
struct Q4_K {
  // | d f16 | dmin f16 | 12 bytes of 6-bit scales and minima, a pair per 32 | 4 x 32 bytes: low nibbles are weights
  // 0..31 of each 64, high nibbles 32..63 |   w = (d sub) q - dmin sub_m
  struct Block {
    uint16_t d, dmin;
    uint8_t scales[12], qs[128];
  };
  static constexpr bool kFloat = false;
  static void unpack(const Block& b, Codes& c) {
    c.d = b.d;
    c.m = b.dmin;
    unpack_k_scales(b.scales, c);
    for (int i = 0; i < 256; ++i) c.q[i] = (b.qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 15;
  }
};
}  // namespace pyrt::formats
