// AVX-512 with AMX: products of eight and more rows by tiles, int8 for the same bits as scalar.h, bf16 for gemm/tiles.inl.h.
// The instructions are written out because the intrinsics of GCC 12 do not tell the compiler which memory they read.
// Intel SDM vol. 1 ch. 18 and vol. 2 (LDTILECFG, TDPBSUD, TDPBF16PS).
#pragma once

#define PYRT_TILES
#include "kernels/simd/zmm.h"

namespace {

// What LDTILECFG reads: the shape of each of the eight tiles.
struct alignas(64) TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

inline void set_tiles(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }
inline void release_tiles() { __asm__ volatile("tilerelease" : : : "memory"); }
template <int kTile> inline void zero_tile() { __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile)); }
template <int kTile> inline void load_tile(const void* p, int64_t stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile> inline void store_tile(void* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(p), "r"(stride) : "memory");
}
// C += A B, of signed by unsigned bytes, four k a step.
template <int kC, int kA, int kB> inline void add_int8_tiles() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
// C += A B, of bf16 pairs.
template <int kC, int kA, int kB> inline void add_bf16_tiles() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// Tiles 0 to 2: C, A and B of 16 rows; 3 to 5: C, A and, for groups of 16, A of 8 rows; 6: B for groups of 16.
constexpr TileShapes kInt8Tiles = {1, 0, {}, {64, 32, 64, 64, 32, 16, 64}, {16, 16, 8, 8, 8, 8, 4}};

template <int kRows, class Codes> inline void dot_rows(const Codes& codes, const int8_t* a, const int32_t* sums, F* isum) {
  if constexpr (kRows < 8) {
    vnni_rows<kRows>(codes, a, sums, isum);
  } else {
    static_assert(kRows == 8 || (kRows == 16 && Codes::kQuads == 8));
    constexpr int kC = kRows == 16 ? 0 : 3, kA = kRows == 16 ? 1 : Codes::kQuads == 8 ? 4 : 5, kB = Codes::kQuads == 8 ? 2 : 6;
    alignas(64) uint8_t unpacked[Codes::kBits == 8 ? 64 : Codes::kQuads * 64];
    const uint8_t* b = unpacked;
    if constexpr (Codes::kBits == 8)
      b = codes.group;
    else
      each<Codes::kQuads>([&](auto j) { b_store(unpacked + j.value * 64, codes.template quad<j.value>()); });
    zero_tile<kC>();
    load_tile<kA>(a, 32);
    load_tile<kB>(b, 64);
    add_int8_tiles<kC, kA, kB>();
    alignas(64) int32_t c[kRows * 16];
    store_tile<kC>(c, 64);
    alignas(64) float zeros[16];  // kZero * sum: small integers, so that every step is exact
    const __m512i z = _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(first_lanes(kRows), sums), _mm512_set1_epi32(Codes::kZero));
    _mm512_store_ps(zeros, _mm512_cvtepi32_ps(z));
    each<kRows>([&](auto r) {
      isum[r.value].v = _mm512_cvtepi32_ps(_mm512_load_si512(c + 16 * r.value));
      if constexpr (Codes::kZero != 0) isum[r.value].v = _mm512_sub_ps(isum[r.value].v, _mm512_set1_ps(zeros[r.value]));
    });
  }
}

// Byte kByte of each lane's four, as a number.
template <int kByte> inline F f_from_byte(B codes) {
  const __m512i pick = _mm512_broadcast_i32x4(_mm_setr_epi8(kByte, -1, -1, -1, kByte + 4, -1, -1, -1, kByte + 8, -1, -1, -1, kByte + 12, -1, -1, -1));
  return {_mm512_cvtepi32_ps(_mm512_shuffle_epi8(codes.v, pick))};
}
// Two numbers a lane as a bf16 pair, to the nearest, ties away from zero.
inline void store_bf16_pairs(uint8_t* p, F first, F second) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(first.v), half), 16);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(second.v), half);
  _mm512_storeu_si512(p, _mm512_mask_mov_epi16(high, 0x55555555, low));
}
inline void store_bf16(uint16_t* p, F a) {
  const __m512i rounded = _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x8000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

}  // namespace
