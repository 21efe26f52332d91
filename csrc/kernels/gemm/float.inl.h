// Float weights x float activations: four chains of FMA over k mod 4, summed (0 + 2) + (1 + 3).
#pragma once

struct LoadF32 { static constexpr int kBytes = 64; static F load(const uint8_t* p) { return f_load(reinterpret_cast<const float*>(p)); } };
struct LoadF16 { static constexpr int kBytes = 32; static F load(const uint8_t* p) { return f_load_f16(p); } };
struct LoadBF16 { static constexpr int kBytes = 32; static F load(const uint8_t* p) { return f_load_bf16(p); } };

template <class W, int kRows>
inline void float_tile(const uint8_t* panel, const float* x, int64_t k, int64_t ldx, float* out, int64_t ldo) {
  F c[kRows][4];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 4; ++j) c[r][j] = f_zero();
  int64_t i = 0;
  for (; i + 4 <= k; i += 4)
    for (int j = 0; j < 4; ++j) {
      const F w = W::load(panel + (i + j) * W::kBytes);
      if constexpr (kRows == 1) prefetch(panel + (i + j) * W::kBytes + 4096);
      for (int r = 0; r < kRows; ++r) c[r][j] = f_fma(w, f_set(x[r * ldx + i + j]), c[r][j]);
    }
  for (int j = 0; i + j < k; ++j) {
    const F w = W::load(panel + (i + j) * W::kBytes);
    for (int r = 0; r < kRows; ++r) c[r][j] = f_fma(w, f_set(x[r * ldx + i + j]), c[r][j]);
  }
  for (int r = 0; r < kRows; ++r) f_store(out + r * ldo, f_add(f_add(c[r][0], c[r][2]), f_add(c[r][1], c[r][3])));
}

template <class W>
void gemm_float(const uint8_t* w, int64_t panel_bytes, int64_t panels, const float* x, int64_t k, int64_t ldx, int64_t rows, float* out, int64_t ldo) {
  for (int64_t p = 0; p < panels; ++p, w += panel_bytes, out += kPanel) {
    int64_t r = 0;
    for (; r + kFloatRows <= rows; r += kFloatRows) float_tile<W, kFloatRows>(w, x + r * ldx, k, ldx, out + r * ldo, ldo);
    for (; r < rows; ++r) float_tile<W, 1>(w, x + r * ldx, k, ldx, out + r * ldo, ldo);
  }
}
