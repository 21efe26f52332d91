// The sixteen-lane vector as four AArch64 registers: what neon.h and neon_dotprod.h share. Same names and bits as scalar.h.
// Lanes 4 h to 4 h + 3 are in v[h].
#pragma once

#include <arm_neon.h>
#include <stdint.h>

#include "kernels/simd/each.h"

namespace {

template <class L> constexpr int kGemmRows = 8;
constexpr int kFloatRows = 4, kFloatSums = 4, kAttnRows = 6, kAttnSums = 24;

struct F { float32x4_t v[4]; };
struct I { int32x4_t v[4]; };
struct B { uint8x16_t v[4]; };

#define EACH for (int h = 0; h < 4; ++h)

// All ones in the lanes [first, first + 4) that are below n.
inline uint32x4_t lanes_below(int n, int first) {
  const int32_t numbers[4] = {first, first + 1, first + 2, first + 3};
  return vcgtq_s32(vdupq_n_s32(n), vld1q_s32(numbers));
}

inline F f_set(float x) { const float32x4_t v = vdupq_n_f32(x); return {{v, v, v, v}}; }
inline F f_zero() { return f_set(0.0f); }
inline F f_load(const float* p) { F r; EACH r.v[h] = vld1q_f32(p + 4 * h); return r; }
inline void f_store(float* p, F a) { EACH vst1q_f32(p + 4 * h, a.v[h]); }
inline F f_load_n(const float* p, int n) {
  if (n == 16) return f_load(p);
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return f_load(lanes);
}
inline void f_store_n(float* p, F a, int n) {
  if (n == 16) return f_store(p, a);
  float lanes[16];
  f_store(lanes, a);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline F f_add(F a, F b) { EACH a.v[h] = vaddq_f32(a.v[h], b.v[h]); return a; }
inline F f_sub(F a, F b) { EACH a.v[h] = vsubq_f32(a.v[h], b.v[h]); return a; }
inline F f_mul(F a, F b) { EACH a.v[h] = vmulq_f32(a.v[h], b.v[h]); return a; }
inline F f_div(F a, F b) { EACH a.v[h] = vdivq_f32(a.v[h], b.v[h]); return a; }
inline F f_fma(F a, F b, F c) { EACH c.v[h] = vfmaq_f32(c.v[h], a.v[h], b.v[h]); return c; }
// Not fmax and fmin, which treat NaN and zeros otherwise.
inline float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline F f_max(F a, F b) { EACH a.v[h] = larger(a.v[h], b.v[h]); return a; }
inline F f_min(F a, F b) { EACH a.v[h] = vbslq_f32(vcltq_f32(a.v[h], b.v[h]), a.v[h], b.v[h]); return a; }
inline F f_select_ge(F x, F limit, F a, F b) { EACH a.v[h] = vbslq_f32(vcgeq_f32(x.v[h], limit.v[h]), a.v[h], b.v[h]); return a; }
inline F f_keep_range(F a, int low, int high, float fill) {
  EACH {
    const uint32x4_t keep = vbicq_u32(lanes_below(high, 4 * h), lanes_below(low, 4 * h));
    a.v[h] = vbslq_f32(keep, a.v[h], vdupq_n_f32(fill));
  }
  return a;
}
inline F f_copysign(F magnitude, F sign) { EACH magnitude.v[h] = vbslq_f32(vdupq_n_u32(0x80000000u), sign.v[h], magnitude.v[h]); return magnitude; }
inline F f_abs(F a) { EACH a.v[h] = vabsq_f32(a.v[h]); return a; }
inline float f_sqrt_one(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
inline float f_sum(F a) {
  const float32x4_t h4 = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t h2 = vadd_f32(vget_low_f32(h4), vget_high_f32(h4));
  return vget_lane_f32(h2, 0) + vget_lane_f32(h2, 1);
}
inline float f_largest(F a) {
  const float32x4_t h4 = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
  const float32x4_t h2 = larger(h4, vextq_f32(h4, h4, 2));
  return vgetq_lane_f32(larger(h2, vextq_f32(h2, h2, 1)), 0);
}

inline I i_zero() { const int32x4_t v = vdupq_n_s32(0); return {{v, v, v, v}}; }
inline I i_magnitude(F a) { I r; EACH r.v[h] = vreinterpretq_s32_f32(vabsq_f32(a.v[h])); return r; }
inline I i_max(I a, I b) { EACH a.v[h] = vmaxq_s32(a.v[h], b.v[h]); return a; }
inline int32_t i_largest(I a) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3]))); }
inline int32_t i_sum(I a) { return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3]))); }
inline I i_round(F a) { I r; EACH r.v[h] = vcvtnq_s32_f32(a.v[h]); return r; }
inline void i_store_i8(int8_t* p, I a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1])), high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
// The codes of a group, and the sums of its halves.
inline void i_store_codes(int8_t* p, I a, I b, int32_t* sum_a, int32_t* sum_b) {
  i_store_i8(p, a);
  i_store_i8(p + 16, b);
  *sum_a = i_sum(a);
  *sum_b = i_sum(b);
}
inline F f_from_i(I a) { F r; EACH r.v[h] = vcvtq_f32_s32(a.v[h]); return r; }
inline F f_pow2(I n) { F r; EACH r.v[h] = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.v[h], vdupq_n_s32(127)), 23)); return r; }

inline uint8x16_t load_16(const void* p, int at) { return vld1q_u8(static_cast<const uint8_t*>(p) + at); }
inline uint8x8_t load_8(const void* p, int at) { return vld1_u8(static_cast<const uint8_t*>(p) + at); }
inline F f_load_f16(const void* p) { F r; EACH r.v[h] = vcvt_f32_f16(vreinterpret_f16_u8(load_8(p, 8 * h))); return r; }
inline F f_load_bf16(const void* p) { F r; EACH r.v[h] = vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(load_8(p, 8 * h)), 16)); return r; }
inline F f_load_i8(const void* p) {
  const int8x16_t x = vreinterpretq_s8_u8(load_16(p, 0));
  const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
  return f_from_i({{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}});
}
inline F f_load_u8(const void* p) {
  const uint8x16_t x = load_16(p, 0);
  const uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_u8(vget_high_u8(x));
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}
inline void f_store_f16(uint16_t* p, F a) { EACH vst1_u16(p + 4 * h, vreinterpret_u16_f16(vcvt_f16_f32(a.v[h]))); }

// One of the four registers, for loops that keep as many sums as there are registers.
using P = float32x4_t;
constexpr int kParts = 4;
inline P p_set(float x) { return vdupq_n_f32(x); }
inline P p_add(P a, P b) { return vaddq_f32(a, b); }
inline P p_mul(P a, P b) { return vmulq_f32(a, b); }
inline P p_fma(P a, P b, P c) { return vfmaq_f32(c, a, b); }
inline P p_load(const float* p) { return vld1q_f32(p); }
inline P p_load_f16(const void* p) { return vcvt_f32_f16(vreinterpret_f16_u8(load_8(p, 0))); }
inline P p_load_i8(const void* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, 4);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}
inline void p_store(float* p, P a) { vst1q_f32(p, a); }

inline B b_load(const uint8_t* p) { B r; EACH r.v[h] = vld1q_u8(p + 16 * h); return r; }
inline void b_store(uint8_t* p, B a) { EACH vst1q_u8(p + 16 * h, a.v[h]); }
inline B b_or(B a, B b) { EACH a.v[h] = vorrq_u8(a.v[h], b.v[h]); return a; }
template <int kMask> inline B b_and(B a) { EACH a.v[h] = vandq_u8(a.v[h], vdupq_n_u8(kMask)); return a; }
template <int kShift, int kMask> inline B b_shift_and(B a) {
  EACH {
    if constexpr (kShift > 0) a.v[h] = vshlq_n_u8(a.v[h], kShift);
    if constexpr (kShift < 0) a.v[h] = vshrq_n_u8(a.v[h], -kShift);
  }
  return b_and<kMask>(a);
}

// Codes as signed bytes: eight bits become u - 128, fewer bits stay what they are.
template <int kBits> inline int8x16_t signed_codes(uint8x16_t u) {
  return vreinterpretq_s8_u8(kBits == 8 ? veorq_u8(u, vdupq_n_u8(0x80)) : u);
}
inline void prefetch(const uint8_t* p) { __builtin_prefetch(p); }

#undef EACH

}  // namespace
