#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct Q8_0 {
  // | d f16 | 32 signed bytes |   w = d q, kept here as d (u - 128)
  struct Block {
    uint16_t d;
    int8_t qs[32];
  };
  static constexpr bool kFloat = false;
  static void unpack(const Block& b, Codes& c) {
    c.d = b.d;
    for (int i = 0; i < 32; ++i) c.q[i] = uint8_t(b.qs[i] + 128);
  }
};
}  // namespace pyrt::formats
