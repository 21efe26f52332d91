// The sixteen-lane vector as plain arrays: the definition that every other ISA must equal bit for bit.
#pragma once

#include <stdint.h>

#include "kernels/simd/each.h"

namespace {

// Rows of activations that a tile of layout L takes at once, and of those the ones whose integer sums are in registers
// together; likewise for float weights, and for attention with as many sums of parts at once.
constexpr int kFloatRows = 1, kFloatSums = 4, kAttnRows = 2, kAttnSums = 4;
template <class L> constexpr int kGemmRows = 2;
template <int kBits> constexpr int kDotRows = 2;

struct F { float v[16]; };
struct I { int32_t v[16]; };
struct B { uint8_t v[64]; };

#define EACH for (int i = 0; i < 16; ++i)

inline uint32_t bits_of(float x) { uint32_t u; __builtin_memcpy(&u, &x, 4); return u; }
inline float float_of(uint32_t u) { float x; __builtin_memcpy(&x, &u, 4); return x; }

// a * b + c with one rounding: exact product in double, exact sum as high + error, rounded to odd, then to float.
// Method: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd" (2008).
inline float fma_one(float a, float b, float c) {
  const double p = double(a) * double(b), d = double(c);
  double s = p + d;
  const double back = s - p, error = (p - (s - back)) + (d - back);
  uint64_t u;
  __builtin_memcpy(&u, &s, 8);
  if (error != 0 && error == error && (u & 1) == 0) {
    const bool away = (error > 0) == (s > 0);
    u += away ? 1 : uint64_t(-1);
    __builtin_memcpy(&s, &u, 8);
  }
  return float(s);
}

// Whether rounding s = fl(a * b + c) once more, to float, may differ from rounding once: only if s is halfway between two
// floats (a double that rounding cannot cross), or below the normal floats, where halfway lies elsewhere.
inline uint32_t rounds_twice(double s, float f) {
  uint64_t u;
  __builtin_memcpy(&u, &s, 8);
  const uint32_t magnitude = bits_of(f) & 0x7fffffffu;
  return uint32_t((uint32_t(u) & 0x1fffffffu) == 0x10000000u) | uint32_t((magnitude <= 0x00800000u) & (s != 0));
}

inline F f_zero() { F r; EACH r.v[i] = 0; return r; }
inline F f_set(float x) { F r; EACH r.v[i] = x; return r; }
inline F f_load(const float* p) { F r; __builtin_memcpy(&r, p, 64); return r; }
inline F f_load_n(const float* p, int n) { F r = f_zero(); for (int i = 0; i < n; ++i) r.v[i] = p[i]; return r; }
inline void f_store(float* p, F a) { __builtin_memcpy(p, &a, 64); }
inline void f_store_n(float* p, F a, int n) { for (int i = 0; i < n; ++i) p[i] = a.v[i]; }
inline F f_add(F a, F b) { EACH a.v[i] += b.v[i]; return a; }
inline F f_sub(F a, F b) { EACH a.v[i] -= b.v[i]; return a; }
inline F f_mul(F a, F b) { EACH a.v[i] *= b.v[i]; return a; }
inline F f_div(F a, F b) { EACH a.v[i] /= b.v[i]; return a; }
inline F f_fma(F a, F b, F c) {
  F r;
  uint32_t doubtful = 0;
  EACH {
    const double s = double(a.v[i]) * double(b.v[i]) + double(c.v[i]);
    r.v[i] = float(s);
    doubtful |= rounds_twice(s, r.v[i]);
  }
  if (doubtful) EACH r.v[i] = fma_one(a.v[i], b.v[i], c.v[i]);
  return r;
}
inline F f_max(F a, F b) { EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
inline F f_min(F a, F b) { EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
// Lanes where x >= limit take a, the others b.
inline F f_select_ge(F x, F limit, F a, F b) { EACH a.v[i] = x.v[i] >= limit.v[i] ? a.v[i] : b.v[i]; return a; }
// Lanes outside [low, high) become `fill`.
inline F f_keep_range(F a, int low, int high, float fill) { EACH if (i < low || i >= high) a.v[i] = fill; return a; }
inline F f_copysign(F magnitude, F sign) { EACH magnitude.v[i] = float_of((bits_of(magnitude.v[i]) & 0x7fffffffu) | (bits_of(sign.v[i]) & 0x80000000u)); return magnitude; }
inline F f_abs(F a) { EACH a.v[i] = float_of(bits_of(a.v[i]) & 0x7fffffffu); return a; }
inline float f_sqrt_one(float x) { return __builtin_sqrtf(x); }
// One tree for all: lanes i and i + 8, then i + 4, i + 2, i + 1.
inline float f_sum(F a) { for (int w = 8; w; w /= 2) for (int i = 0; i < w; ++i) a.v[i] += a.v[i + w]; return a.v[0]; }
inline float f_largest(F a) { for (int w = 8; w; w /= 2) for (int i = 0; i < w; ++i) a.v[i] = a.v[i] > a.v[i + w] ? a.v[i] : a.v[i + w]; return a.v[0]; }

inline I i_zero() { I r; EACH r.v[i] = 0; return r; }
// Bits of the magnitudes as integers: their order is that of the floats, NaN above infinity.
inline I i_magnitude(F a) { I r; EACH r.v[i] = int32_t(bits_of(a.v[i]) & 0x7fffffffu); return r; }
inline I i_max(I a, I b) { EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
inline int32_t i_largest(I a) { int32_t m = a.v[0]; EACH m = m > a.v[i] ? m : a.v[i]; return m; }
inline int32_t i_sum(I a) { int32_t s = 0; EACH s += a.v[i]; return s; }
// Nearest integer, ties to even; |a| < 2^22.
inline I i_round(F a) { I r; EACH { const float t = a.v[i] + 0x1.8p23f; r.v[i] = int32_t(bits_of(t)) - 0x4b400000; } return r; }
inline void i_store_i8(int8_t* p, I a) { EACH p[i] = int8_t(a.v[i]); }
// The codes of a group, and the sums of its halves.
inline void i_store_codes(int8_t* p, I a, I b, int32_t* sum_a, int32_t* sum_b) {
  i_store_i8(p, a);
  i_store_i8(p + 16, b);
  *sum_a = i_sum(a);
  *sum_b = i_sum(b);
}
inline F f_from_i(I a) { F r; EACH r.v[i] = float(a.v[i]); return r; }
// 2^n for -126 <= n <= 127.
inline F f_pow2(I n) { F r; EACH r.v[i] = float_of(uint32_t(n.v[i] + 127) << 23); return r; }

inline float f16_one(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // Moving the exponent by multiplication is exact and covers subnormals.
  return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
}
inline F f_load_f16(const void* p) { F r; EACH { uint16_t h; __builtin_memcpy(&h, static_cast<const char*>(p) + 2 * i, 2); r.v[i] = f16_one(h); } return r; }
inline F f_load_bf16(const void* p) { F r; EACH { uint16_t h; __builtin_memcpy(&h, static_cast<const char*>(p) + 2 * i, 2); r.v[i] = float_of(uint32_t(h) << 16); } return r; }
inline F f_load_i8(const void* p) { F r; EACH r.v[i] = float(static_cast<const int8_t*>(p)[i]); return r; }
inline F f_load_u8(const void* p) { F r; EACH r.v[i] = float(static_cast<const uint8_t*>(p)[i]); return r; }
// |a| <= 65504 or NaN.
inline void f_store_f16(uint16_t* p, F a) {
  EACH {
    const uint32_t bits = bits_of(a.v[i]), magnitude = bits & 0x7fffffffu;
    uint32_t h;
    if (magnitude > 0x7f800000u) h = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // quiet NaN, payload kept as the hardware does
    else if (magnitude < 0x38800000u) h = uint32_t((float_of(magnitude) * 0x1p24f + 0x1p23f) - 0x1p23f);
    else h = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    p[i] = uint16_t(h | ((bits >> 16) & 0x8000u));
  }
}

inline B b_load(const uint8_t* p) { B r; __builtin_memcpy(&r, p, 64); return r; }
inline void b_store(uint8_t* p, B a) { __builtin_memcpy(p, &a, 64); }
inline B b_or(B a, B b) { for (int i = 0; i < 64; ++i) a.v[i] |= b.v[i]; return a; }
template <int kMask> inline B b_and(B a) { for (int i = 0; i < 64; ++i) a.v[i] &= uint8_t(kMask); return a; }
// The bits under kMask of each byte after moving the byte left (right where kShift is negative).
template <int kShift, int kMask> inline B b_shift_and(B a) {
  for (int i = 0; i < 64; ++i) a.v[i] = uint8_t((kShift >= 0 ? a.v[i] << (kShift & 7) : a.v[i] >> (-kShift & 7)) & kMask);
  return a;
}

// isum[r] = the exact sum over a group's codes of (u - kZero) * a[r], for kRows rows, as a float. a is [kRows][32], sums[r] the
// sum of all a[r] that count; codes.quad<j>() is [16 lanes][4 codes] of k-quad j.
template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  B w[Codes::kQuads];
  each<Codes::kQuads>([&](auto j) { w[j.value] = codes.template quad<j.value>(); });
  for (int r = 0; r < kRows; ++r, a += 32) {
    I s;
    EACH s.v[i] = -Codes::kZero * sums[r];
    for (int j = 0; j < Codes::kQuads; ++j)
      EACH for (int t = 0; t < 4; ++t) s.v[i] += int32_t(w[j].v[4 * i + t]) * int32_t(a[4 * j + t]);
    isum[r] = f_from_i(s);
  }
}
inline void prefetch(const uint8_t*) {}

#undef EACH

}  // namespace

#include "kernels/simd/whole.h"
