// The packed weight layouts. Freestanding: the kernels of every ISA include it.
//
// A panel is 16 output rows (n). It holds its whole k as records, back to back:
//   record = header (scales) | group 0 | group 1 | ...          64 weights of each row, 256 with two-level scales
//   header, flat:       d f16 [groups][16] | if minima: m f16 [groups][16]
//   header, two-level:  d f16 [16] | dmin f16 [16] (zero without minima) | sub i8 [groups][16] | if minima: sub_m u8 [groups][16]
//   group:  4-bit plane [group/8][16 n][4 k]: byte j holds k-quad 2j in its low nibble, 2j+1 in its high nibble
//           5 bits: + [16 n][4 k], bit r is the fifth bit of k-quad r
//           6 bits: + [16 n][4 k], bits 2r, 2r+1 are the upper bits of k-quad r
//           8 bits: only [group/4][16 n][4 k]
// Everything is in whole cache lines of 64 bytes. Rows beyond n and weights beyond k are zero: scale 0 and code 0.
// Float panels are [k][16 n].
#pragma once

#include <stdint.h>

namespace pyrt {

constexpr int kPanel = 16;
constexpr int kQuantGroup = 32;  // activations: one scale per 32 values

template <int Bits, int Zero, int Group, bool TwoLevel, bool Minima>
struct Layout {
  static constexpr int kBits = Bits, kZero = Zero, kGroup = Group;
  static constexpr bool kTwoLevel = TwoLevel, kMinima = Minima;
  static constexpr int kRecordK = TwoLevel ? 256 : 64;
  static constexpr int kGroups = kRecordK / Group;
  static constexpr int kQuads = Group / 4;
  static constexpr int kSubOffset = 64;
  static constexpr int kSubMinOffset = 64 + kGroups * kPanel;
  static constexpr int kMinOffset = kGroups * kPanel * 2;
  static constexpr int kHeader = TwoLevel ? kSubMinOffset + (Minima ? kGroups * kPanel : 0) : kMinOffset * (Minima ? 2 : 1);
  static constexpr int kPlane = Bits == 8 ? kQuads * 64 : kQuads * 32;
  static constexpr int kGroupBytes = kPlane + (Bits == 5 || Bits == 6 ? 64 : 0);
  static constexpr int kRecord = kHeader + kGroups * kGroupBytes;
  static_assert(kRecord % 64 == 0 && (Bits != 6 || kQuads == 4) && (Bits != 5 || kQuads == 8));
};

#define LAYOUT(name, bits, zero, group, two_level, minima) using name = Layout<bits, zero, group, two_level, minima>;
namespace layouts {
#include "packed/layouts.def"
}
#undef LAYOUT

}  // namespace pyrt
