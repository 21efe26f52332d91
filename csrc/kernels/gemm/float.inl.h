// Float weights x float activations: four chains of FMA over k mod 4, summed (0 + 2) + (1 + 3).
#pragma once

struct LoadF32 { static constexpr int kBytes = 64; static F load(const uint8_t* p) { return f_load(reinterpret_cast<const float*>(p)); } };
struct LoadF16 { static constexpr int kBytes = 32; static F load(const uint8_t* p) { return f_load_f16(p); } };
struct LoadBF16 { static constexpr int kBytes = 32; static F load(const uint8_t* p) { return f_load_bf16(p); } };

constexpr int kChainBlock = 64;  // k that one chain runs through before the next: its weights stay in L1

// Chains [kFirst, kFirst + kChains) of kRows rows over k values, a multiple of 4.
template <class W, int kRows, int kFirst, int kChains>
inline void add_chains(const uint8_t* panel, int64_t ahead, const float* x, int64_t k, int64_t ldx, F (*c)[kRows]) {
  F s[kChains][kRows];
  each<kChains>([&](auto j) { each<kRows>([&](auto r) { s[j.value][r.value] = c[kFirst + j.value][r.value]; }); });
  for (int64_t i = kFirst; i < k; i += 4)
    each<kChains>([&](auto j) {
      const uint8_t* at = panel + (i + j.value) * W::kBytes;
      const F w = W::load(at);
      if constexpr ((kFirst + j.value) * W::kBytes % 64 == 0)
        if (ahead) prefetch(at + ahead);
      each<kRows>([&](auto r) { s[j.value][r.value] = f_fma(w, f_set(x[r.value * ldx + i + j.value]), s[j.value][r.value]); });
    });
  each<kChains>([&](auto j) { each<kRows>([&](auto r) { c[kFirst + j.value][r.value] = s[j.value][r.value]; }); });
}

template <class W, int kRows>
inline void float_tile(const uint8_t* panel, int64_t ahead, const float* x, int64_t k, int64_t ldx, float* out, int64_t ldo) {
  // As many chains at a time as there are registers for.
  constexpr int kChains = kRows >= kFloatSums ? 1 : kFloatSums / kRows >= 4 ? 4 : kFloatSums / kRows;
  F c[4][kRows];
  for (int j = 0; j < 4; ++j)
    for (int r = 0; r < kRows; ++r) c[j][r] = f_zero();
  const int64_t whole = k / 4 * 4;
  for (int64_t i = 0; i < whole; i += kChainBlock) {
    const int64_t n = whole - i < kChainBlock ? whole - i : kChainBlock;
    each<4 / kChains>([&](auto part) {
      add_chains<W, kRows, part.value * kChains, kChains>(panel + i * W::kBytes, ahead, x + i, n, ldx, c);
    });
  }
  for (int64_t i = whole; i < k; ++i) {
    const F w = W::load(panel + i * W::kBytes);
    for (int r = 0; r < kRows; ++r) c[i - whole][r] = f_fma(w, f_set(x[r * ldx + i]), c[i - whole][r]);
  }
  for (int r = 0; r < kRows; ++r) f_store(out + r * ldo, f_add(f_add(c[0][r], c[2][r]), f_add(c[1][r], c[3][r])));
}

template <class W, int kRows>
inline void float_rows(const uint8_t* panel, int64_t ahead, const float* x, int64_t k, int64_t ldx, int64_t row, int64_t rows, float* out, int64_t ldo) {
  for (; row + kRows <= rows; row += kRows) float_tile<W, kRows>(panel, ahead, x + row * ldx, k, ldx, out + row * ldo, ldo);
  if constexpr (kRows > 1) float_rows<W, kRows / 2>(panel, ahead, x, k, ldx, row, rows, out, ldo);
}

template <class W>
void gemm_float(const uint8_t* w, int64_t panel_bytes, int64_t panels, int64_t ahead, const float* x, int64_t k, int64_t ldx, int64_t rows, float* out, int64_t ldo) {
  for (int64_t p = 0; p < panels; ++p) float_rows<W, kFloatRows>(w + p * panel_bytes, ahead, x, k, ldx, 0, rows, out + p * kPanel, ldo);
}
