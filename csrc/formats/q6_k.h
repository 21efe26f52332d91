#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct Q6_K {
  // | 128 bytes: low 4 bits | 64 bytes: high 2 bits | 16 signed scales, one per 16 | d f16 |   w = (d sub) (q - 32)
  // Weights 0..127 and 128..255 alike: of 64 low bytes, byte j holds weights j (low nibble) and j + 64 (high nibble);
  // of 32 high bytes, byte j holds two bits each of weights j, j + 32, j + 64, j + 96.
  struct Block {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint16_t d;
  };
  static constexpr bool kFloat = false;
  static void unpack(const Block& b, Codes& c) {
    c.d = b.d;
    std::memcpy(c.sub, b.scales, 16);
    for (int i = 0; i < 256; ++i) {
      const int half = i / 128, j = i % 128;
      const int low = (b.ql[half * 64 + j % 64] >> (j / 64 * 4)) & 15;
      const int high = (b.qh[half * 32 + j % 32] >> (j / 32 * 2)) & 3;
      c.q[i] = uint8_t(low | high << 4);
    }
  }
};
}  // namespace pyrt::formats
