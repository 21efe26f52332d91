#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct Q5_0 {
  // | d f16 | 32 bits: bit i is the fifth bit of weight i | 16 bytes of nibbles as in Q4_0 |   w = d (q - 16)
  struct Block {
    uint16_t d;
    uint8_t qh[4], qs[16];
  };
  static constexpr bool kFloat = false;
  static void unpack(const Block& b, Codes& c) {
    c.d = b.d;
    for (int i = 0; i < 32; ++i) {
      const int low = i < 16 ? b.qs[i] & 15 : b.qs[i - 16] >> 4;
      c.q[i] = uint8_t(low | ((b.qh[i / 8] >> (i % 8)) & 1) << 4);
    }
  }
};
}  // namespace pyrt::formats
