// Packed codes x int8 activations. For each output and group, in this order and with one rounding each:
//   isum = sum (u - zero) * a, exact
//   flat:       C = fma(isum, d * sa, C);        with minima: C = fma(m, sa * sum a, C)
//   two-level:  acc = fma(isum, sub * sa, acc);  with minima: min = fma(sub_m, sa * sum a, min)
//               and per 256: C = fma(d, acc, C); with minima: C = fma(-dmin, min, C)
#pragma once

// The codes of one group, unpacked quad by quad where dot_rows (simd) wants them.
template <class L>
struct Codes {
  static constexpr int kBits = L::kBits, kZero = L::kZero, kQuads = L::kQuads;
  const uint8_t* group;

  // [16 n][4 k] of k-quad kQuad.
  template <int kQuad>
  B quad() const {
    if constexpr (kBits == 8) {
      return b_load(group + kQuad * 64);
    } else {
      B w = b_shift_and<kQuad % 2 ? -4 : 0, 0x0f>(b_load(group + kQuad / 2 * 64));
      if constexpr (kBits == 5) w = b_or(w, b_shift_and<4 - kQuad, 0x10>(b_load(group + L::kPlane)));
      if constexpr (kBits == 6) w = b_or(w, b_shift_and<4 - 2 * kQuad, 0x30>(b_load(group + L::kPlane)));
      return w;
    }
  }
};

// The same codes, unpacked once for many rows.
template <class L>
struct Unpacked {
  static constexpr int kBits = L::kBits, kZero = L::kZero, kQuads = L::kQuads;
  alignas(64) uint8_t bytes[kQuads * 64];

  explicit Unpacked(const Codes<L>& codes) {
    each<kQuads>([&](auto j) { b_store(bytes + j.value * 64, codes.template quad<j.value>()); });
  }
  template <int kQuad>
  B quad() const { return b_load(bytes + kQuad * 64); }
};

// The float accumulators of a tile.
template <class L, int kRows>
struct Sums {
  F c[kRows], acc[kRows], min[kRows];
};

// One group for kRows rows of a tile, from row r on; q, scale, sum and sums point at the tile's first row in this group.
template <class L, int kRows, class Group, class Sums>
inline void add_group(const Group& codes, const uint8_t* record, int g, const int8_t* q, const float* scale, const float* sum,
                      const int32_t* sums, int r, Sums& s) {
  F isum[kRows];
  dot_rows<kRows>(codes, q + r * kQuantGroup, sums + r, isum);
  if constexpr (L::kTwoLevel) {
    const F sub = f_load_i8(record + L::kSubOffset + g * kPanel);
    each<kRows>([&](auto i) { s.acc[r + i.value] = f_fma(isum[i.value], f_mul(sub, f_set(scale[r + i.value])), s.acc[r + i.value]); });
    if constexpr (L::kMinima) {
      const F sub_m = f_load_u8(record + L::kSubMinOffset + g * kPanel);
      each<kRows>([&](auto i) { s.min[r + i.value] = f_fma(sub_m, f_set(sum[r + i.value]), s.min[r + i.value]); });
    }
  } else {
    const F d = f_load_f16(record + g * kPanel * 2);
    each<kRows>([&](auto i) { s.c[r + i.value] = f_fma(isum[i.value], f_mul(d, f_set(scale[r + i.value])), s.c[r + i.value]); });
    if constexpr (L::kMinima) {
      const F m = f_load_f16(record + L::kMinOffset + g * kPanel * 2);
      each<kRows>([&](auto i) { s.c[r + i.value] = f_fma(m, f_set(sum[r + i.value]), s.c[r + i.value]); });
    }
  }
}

// kRows activation rows against one panel. All calls in it are inlined: between the products they cost 5 and 6 bits a tenth.
template <class L, int kRows>
__attribute__((flatten)) inline void gemm_tile(const uint8_t* record, int64_t ahead, const pyrt_acts* x, int64_t row, float* out, int64_t ldo) {
  constexpr int kBlock = kRows < kDotRows<L::kBits> ? kRows : kDotRows<L::kBits>;
  const int64_t ld = x->ld;
  const int8_t* q = x->q + row * kQuantGroup;
  const float *scale = x->scale + row, *sum = x->sum + row;
  const int32_t* sums = (L::kGroup == 16 ? x->sum16 : x->sum32) + row;
  Sums<L, kRows> s;
  for (int r = 0; r < kRows; ++r) s.c[r] = f_zero();

  for (int64_t k0 = 0; k0 < x->k; k0 += L::kRecordK, record += L::kRecord) {
    if constexpr (L::kTwoLevel)
      for (int r = 0; r < kRows; ++r) s.acc[r] = s.min[r] = f_zero();
    if (ahead)
      for (int b = 0; b < L::kHeader; b += 64) prefetch(record + ahead + b);
    for (int g = 0; g < L::kGroups; ++g) {
      const Codes<L> codes{record + L::kHeader + g * L::kGroupBytes};
      const int8_t* part = q + (L::kGroup == 16 ? g % 2 * 16 : 0);
      if (ahead)
        for (int b = 0; b < L::kGroupBytes; b += 64) prefetch(codes.group + ahead + b);
      if constexpr (kRows == kBlock || L::kBits == 8) {
        for (int r = 0; r < kRows; r += kBlock) add_group<L, kBlock>(codes, record, g, part, scale, sum, sums, r, s);
      } else {
        const Unpacked<L> unpacked(codes);
        for (int r = 0; r < kRows; r += kBlock) add_group<L, kBlock>(unpacked, record, g, part, scale, sum, sums, r, s);
      }
      sums += ld;
      if (L::kGroup == 32 || g % 2) {
        q += ld * kQuantGroup;
        scale += ld;
        sum += ld;
      }
    }
    if constexpr (L::kTwoLevel) {
      const F d = f_load_f16(record), minus_dmin = f_sub(f_zero(), f_load_f16(record + 32));
      for (int r = 0; r < kRows; ++r) {
        s.c[r] = f_fma(d, s.acc[r], s.c[r]);
        if constexpr (L::kMinima) s.c[r] = f_fma(minus_dmin, s.min[r], s.c[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) f_store(out + r * ldo, s.c[r]);
}

template <class L, int kRows>
inline int64_t gemm_rows(const uint8_t* panel, int64_t ahead, const pyrt_acts* x, int64_t row, int64_t rows, float* out, int64_t ldo) {
  for (; row + kRows <= rows; row += kRows) gemm_tile<L, kRows>(panel, ahead, x, row, out + row * ldo, ldo);
  if constexpr (kRows > 1) return gemm_rows<L, kRows / 2>(panel, ahead, x, row, rows, out, ldo);
  return row;
}

template <class L>
void gemm_quant(const uint8_t* w, int64_t panel_bytes, int64_t panels, int64_t ahead, const pyrt_acts* x, int64_t rows, float* out, int64_t ldo) {
  for (int64_t p = 0; p < panels; ++p) gemm_rows<L, kGemmRows<L>>(w + p * panel_bytes, ahead, x, 0, rows, out + p * kPanel, ldo);
}
