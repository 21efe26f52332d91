// IEEE binary16 and bfloat16, one definition for every machine: round to nearest, ties to even; f16 overflow saturates.
#pragma once

#include <bit>
#include <cstdint>

namespace pyrt {

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = float(mantissa) * 0x1p-24f;  // subnormal or zero, exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Finite values beyond the range become the largest finite f16; infinities and NaN stay what they are.
inline uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude == 0x7f800000u) return uint16_t(sign | 0x7c00u);
  if (magnitude >= 0x477fe000u) return uint16_t(sign | 0x7bffu);  // >= 65504
  if (magnitude < 0x38800000u) {                                  // below 2^-14: counts of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    const float rounded = (scaled + 0x1p23f) - 0x1p23f;  // nearest integer, ties to even
    return uint16_t(sign | uint32_t(rounded));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }

inline uint16_t f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);  // keep NaN a NaN
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace pyrt
