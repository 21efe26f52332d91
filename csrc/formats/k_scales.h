// The twelve bytes of Q4_K and Q5_K that hold eight 6-bit scales and eight 6-bit minima.
#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
// bytes 0..3: scale 0..3 (6 low bits), bits 4,5 of scale 4..7 (2 high bits); bytes 4..7: the same for the minima;
// bytes 8..11: low nibble is bits 0..3 of scale 4..7, high nibble of minimum 4..7.
inline void unpack_k_scales(const uint8_t s[12], Codes& c) {
  for (int g = 0; g < 4; ++g) {
    c.sub[g] = int8_t(s[g] & 63);
    c.sub_m[g] = uint8_t(s[g + 4] & 63);
    c.sub[g + 4] = int8_t((s[g + 8] & 15) | (s[g] >> 6) << 4);
    c.sub_m[g + 4] = uint8_t((s[g + 8] >> 4) | (s[g + 4] >> 6) << 4);
  }
}
}  // namespace pyrt::formats
