// AVX2, FMA and F16C. The dot product is maddubs (u8 x s8 pairs to s16) with sums kept inside 16 bits, then madd to 32.
#pragma once

#include "kernels/simd/ymm.h"

namespace {

constexpr int kFloatRows = 4, kFloatSums = 4, kAttnRows = 6, kAttnSums = 12;
// Unpacking five or six bits pays for a copy of the codes that many rows read; four and eight are unpacked again by each four.
template <class L> constexpr int kGemmRows = L::kBits == 5 || L::kBits == 6 ? 16 : 4;
template <int kBits> constexpr int kDotRows = 4;

// How many maddubs of u * a, |a| <= 127, fit 16 bits: each adds at most 2 * (2^bits - 1) * 127.
template <int kBits> constexpr int kSafeTerms = 32767 / (2 * ((1 << kBits) - 1) * 127);
static_assert(kSafeTerms<4> == 8 && kSafeTerms<5> == 4 && kSafeTerms<6> == 2);

// Keeps a sum where it is written: GCC would make all products first, for a tree of sums, and run out of registers.
inline __m256i in_order(__m256i sum) { __asm__("" : "+x"(sum)); return sum; }

// A half of the lanes, of eight codes each, times a quad of activations: sums of two products in 16 bits.
template <int kBits> inline __m256i multiply(__m256i u, __m256i quad) {
  if constexpr (kBits != 8) return _mm256_maddubs_epi16(u, quad);
  // Eight bits do not fit even once; |u - 128| <= 128 and a sign moved over to a do: 2 * 128 * 127 = 32512.
  const __m256i s = _mm256_xor_si256(u, _mm256_set1_epi8(char(0x80)));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(quad, s));
}

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  constexpr int kBits = Codes::kBits;
  static_assert(kBits != 8 || Codes::kZero == 128);
  constexpr int kTerms = kBits == 8 ? 1 : kSafeTerms<kBits> < Codes::kQuads ? kSafeTerms<kBits> : Codes::kQuads;
  constexpr int kZero = kBits == 8 ? 0 : Codes::kZero;
  __m256i total[kRows][2];
  each<Codes::kQuads / kTerms>([&](auto p) {
    __m256i part[kRows][2];
    each<kTerms>([&](auto t) {
      constexpr int kQuad = p.value * kTerms + t.value;
      const B w = codes.template quad<kQuad>();
      each<kRows>([&](auto r) {
        const __m256i quad = spread_quad(a + 32 * r.value + 4 * kQuad);
        each<2>([&](auto h) {
          const __m256i term = multiply<kBits>(w.v[h.value], quad);
          __m256i& sum = part[r.value][h.value];
          sum = t.value == 0 ? term : _mm256_add_epi16(sum, term);
          if constexpr (kBits <= 5) sum = in_order(sum);
        });
      });
    });
    each<kRows>([&](auto r) {
      each<2>([&](auto h) {
        const __m256i wide = _mm256_madd_epi16(part[r.value][h.value], _mm256_set1_epi16(1));
        total[r.value][h.value] = p.value == 0 ? wide : _mm256_add_epi32(total[r.value][h.value], wide);

      });
    });
  });
  alignas(16) float zeros[4];
  if constexpr (kZero != 0) zero_points<kZero, kRows>(0.0f, sums, zeros);
  each<kRows>([&](auto r) {
    isum[r.value] = f_from_i({{total[r.value][0], total[r.value][1]}});
    if constexpr (kZero != 0) isum[r.value] = f_sub(isum[r.value], f_set(zeros[r.value]));
  });
}

}  // namespace
