// Packed codes x int8 activations. For each output and group, in this order and with one rounding each:
//   isum = sum (u - zero) * a, exact
//   flat:       C = fma(isum, d * sa, C);        with minima: C = fma(m, sa * sum a, C)
//   two-level:  acc = fma(isum, sub * sa, acc);  with minima: min = fma(sub_m, sa * sum a, min)
//               and per 256: C = fma(d, acc, C); with minima: C = fma(-dmin, min, C)
#pragma once

// The codes of one group: w[r] is [16 n][4 k] of k-quad r.
template <class L, int kQuad = 0>
inline void unpack_group(const uint8_t* group, B* w) {
  if constexpr (L::kBits == 8) {
    w[kQuad] = b_load(group + kQuad * 64);
  } else {
    const B line = b_load(group + kQuad / 2 * 64);
    w[kQuad] = b_shift_and<kQuad % 2 ? -4 : 0, 0x0f>(line);
    if constexpr (L::kBits == 5) w[kQuad] = b_or(w[kQuad], b_shift_and<4 - kQuad, 0x10>(b_load(group + L::kPlane)));
    if constexpr (L::kBits == 6) w[kQuad] = b_or(w[kQuad], b_shift_and<4 - 2 * kQuad, 0x30>(b_load(group + L::kPlane)));
  }
  if constexpr (kQuad + 1 < L::kQuads) unpack_group<L, kQuad + 1>(group, w);
}

constexpr int kPrefetchBytes = 4096;

// kRows activation rows against one panel.
template <class L, int kRows>
inline void gemm_tile(const uint8_t* record, const pyrt_acts* x, int64_t row, float* out, int64_t ldo) {
  constexpr int kSums = L::kGroup == 16 ? 16 : 32;
  const int64_t k = x->k;
  const int8_t* q = x->q + row * k;
  const float* scale = x->scale + row * (k / 32);
  const float* sum = x->sum + row * (k / 32);
  const int32_t* sums = (kSums == 16 ? x->sum16 : x->sum32) + row * (k / kSums);
  F c[kRows];
  for (int r = 0; r < kRows; ++r) c[r] = f_zero();

  for (int64_t k0 = 0; k0 < k; k0 += L::kRecordK, record += L::kRecord) {
    F acc[kRows], min[kRows];
    if constexpr (L::kTwoLevel)
      for (int r = 0; r < kRows; ++r) acc[r] = min[r] = f_zero();
    if constexpr (kRows == 1)
      for (int b = 0; b < L::kHeader; b += 64) prefetch(record + kPrefetchBytes + b);
    for (int g = 0; g < L::kGroups; ++g) {
      const uint8_t* group = record + L::kHeader + g * L::kGroupBytes;
      if constexpr (kRows == 1)
        for (int b = 0; b < L::kGroupBytes; b += 64) prefetch(group + kPrefetchBytes + b);
      B w[L::kQuads];
      unpack_group<L>(group, w);
      const int64_t at = k0 + g * L::kGroup;
      if constexpr (L::kTwoLevel) {
        const F sub = f_load_i8(record + L::kSubOffset + g * kPanel);
        for (int r = 0; r < kRows; ++r) {
          const I isum = dot<L::kBits, L::kZero, L::kQuads>(w, q + r * k + at, sums[r * (k / kSums) + at / kSums]);
          acc[r] = f_fma(f_from_i(isum), f_mul(sub, f_set(scale[r * (k / 32) + at / 32])), acc[r]);
          if constexpr (L::kMinima)
            min[r] = f_fma(f_load_u8(record + L::kSubMinOffset + g * kPanel), f_set(sum[r * (k / 32) + at / 32]), min[r]);
        }
      } else {
        const F d = f_load_f16(record + g * kPanel * 2);
        for (int r = 0; r < kRows; ++r) {
          const I isum = dot<L::kBits, L::kZero, L::kQuads>(w, q + r * k + at, sums[r * (k / kSums) + at / kSums]);
          c[r] = f_fma(f_from_i(isum), f_mul(d, f_set(scale[r * (k / 32) + at / 32])), c[r]);
          if constexpr (L::kMinima)
            c[r] = f_fma(f_load_f16(record + L::kMinOffset + g * kPanel * 2), f_set(sum[r * (k / 32) + at / 32]), c[r]);
        }
      }
    }
    if constexpr (L::kTwoLevel) {
      const F d = f_load_f16(record), minus_dmin = f_sub(f_zero(), f_load_f16(record + 32));
      for (int r = 0; r < kRows; ++r) {
        c[r] = f_fma(d, acc[r], c[r]);
        if constexpr (L::kMinima) c[r] = f_fma(minus_dmin, min[r], c[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) f_store(out + r * ldo, c[r]);
}

template <class L, int kRows>
inline int64_t gemm_rows(const uint8_t* panel, const pyrt_acts* x, int64_t row, int64_t rows, float* out, int64_t ldo) {
  for (; row + kRows <= rows; row += kRows) gemm_tile<L, kRows>(panel, x, row, out + row * ldo, ldo);
  if constexpr (kRows > 1) return gemm_rows<L, kRows / 2>(panel, x, row, rows, out, ldo);
  return row;
}

template <class L>
void gemm_quant(const uint8_t* w, int64_t panel_bytes, int64_t panels, const pyrt_acts* x, int64_t rows, float* out, int64_t ldo) {
  constexpr int kRows = L::kTwoLevel ? kGemmRowsTwoLevel : kGemmRows;
  for (int64_t p = 0; p < panels; ++p) gemm_rows<L, kRows>(w + p * panel_bytes, x, 0, rows, out + p * kPanel, ldo);
}
