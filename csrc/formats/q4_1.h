#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct Q4_1 {
  // | d f16 | m f16 | 16 bytes: low nibbles are weights 0..15, high nibbles 16..31 |   w = d q + m
  struct Block {
    uint16_t d, m;
    uint8_t qs[16];
  };
  static constexpr bool kFloat = false;
  static void unpack(const Block& b, Codes& c) {
    c.d = b.d;
    c.m = b.m;
    for (int i = 0; i < 16; ++i) {
      c.q[i] = b.qs[i] & 15;
      c.q[i + 16] = b.qs[i] >> 4;
    }
  }
};
}  // namespace pyrt::formats
