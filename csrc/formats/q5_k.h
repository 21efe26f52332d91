#pragma once
#include "formats/k_scales.h"
namespace pyrt::formats {
struct Q5_K {
  // | d f16 | dmin f16 | 12 bytes of scales as in Q4_K | 32 bytes: bit g of byte j is the fifth bit of weight 32 g + j |
  // 4 x 32 bytes of nibbles as in Q4_K |   w = (d sub) q - dmin sub_m
  struct Block {
    uint16_t d, dmin;
    uint8_t scales[12], qh[32], qs[128];
  };
  static constexpr bool kFloat = false;
  static void unpack(const Block& b, Codes& c) {
    c.d = b.d;
    c.m = b.dmin;
    unpack_k_scales(b.scales, c);
    for (int i = 0; i < 256; ++i) {
      const int low = (b.qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 15;
      c.q[i] = uint8_t(low | ((b.qh[i % 32] >> (i / 32)) & 1) << 4);
    }
  }
};
}  // namespace pyrt::formats
