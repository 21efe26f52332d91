// Norms over a row, activation codes, f16, sums and rotary positions.
#pragma once

constexpr int32_t kInfinity = 0x7f800000;

inline int lanes_at(int64_t n, int64_t i) { return n - i < kPanel ? int(n - i) : kPanel; }

// Returns 0 if all of x is finite. sum and squares are over all n.
inline int rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  F squares = f_zero();
  I top = i_zero();
  for (int64_t i = 0; i < n; i += kPanel) {
    const F v = f_load_n(x + i, lanes_at(n, i));
    squares = f_fma(v, v, squares);
    top = i_max(top, i_magnitude(v));
  }
  const float scale = 1.0f / f_sqrt_one(f_sum(squares) / float(n) + eps);
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = lanes_at(n, i);
    f_store_n(out + i, f_mul(f_mul(f_load_n(x + i, m), f_set(scale)), f_load_n(w + i, m)), m);
  }
  return i_largest(top) >= kInfinity;
}

inline int layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* out) {
  F total = f_zero(), squares = f_zero();
  I top = i_zero();
  for (int64_t i = 0; i < n; i += kPanel) {
    const F v = f_load_n(x + i, lanes_at(n, i));
    total = f_add(total, v);
    top = i_max(top, i_magnitude(v));
  }
  const F mean = f_set(f_sum(total) / float(n));
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = lanes_at(n, i);
    const F v = f_keep_range(f_sub(f_load_n(x + i, m), mean), 0, m, 0.0f);
    squares = f_fma(v, v, squares);
  }
  const float scale = 1.0f / f_sqrt_one(f_sum(squares) / float(n) + eps);
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = lanes_at(n, i);
    const F v = f_mul(f_sub(f_load_n(x + i, m), mean), f_set(scale));
    const F y = b ? f_fma(v, f_load_n(w + i, m), f_load_n(b + i, m)) : f_mul(v, f_load_n(w + i, m));
    f_store_n(out + i, y, m);
  }
  return i_largest(top) >= kInfinity;
}

// Groups [first, first + 16) of a row: q = rne(x * (127 / amax)), which is within +-127 because x/amax is within +-1. amax < 2^-120
// gives zeros. Returns the magnitudes that were largest.
inline I quantize_groups(const float* x, int64_t n, int64_t first, const pyrt_acts* out, int64_t r, I top) {
  const int64_t groups = out->k / kQuantGroup, last = groups - first < kPanel ? groups : first + kPanel;
  alignas(64) float inverse[kPanel] = {}, scale[kPanel];
  for (int64_t g = first; g < last; ++g) {
    const int64_t i = g * kQuantGroup;
    const F a = i < n ? f_load_n(x + i, lanes_at(n, i)) : f_zero();
    const F b = i + kPanel < n ? f_load_n(x + i + kPanel, lanes_at(n, i + kPanel)) : f_zero();
    inverse[g - first] = f_largest(f_max(f_abs(a), f_abs(b)));
    top = i_max(top, i_max(i_magnitude(a), i_magnitude(b)));
  }
  const F amax = f_load(inverse), least = f_set(0x1p-120f);
  f_store(scale, f_select_ge(amax, least, f_div(amax, f_set(127.0f)), f_zero()));
  f_store(inverse, f_select_ge(amax, least, f_div(f_set(127.0f), amax), f_zero()));
  for (int64_t g = first; g < last; ++g) {
    const int64_t i = g * kQuantGroup, at = g * out->ld + r;
    const F by = f_set(inverse[g - first]);
    const I a = i_round(f_mul(i < n ? f_load_n(x + i, lanes_at(n, i)) : f_zero(), by));
    const I b = i_round(f_mul(i + kPanel < n ? f_load_n(x + i + kPanel, lanes_at(n, i + kPanel)) : f_zero(), by));
    int32_t* sums = out->sum16 + 2 * g * out->ld + r;
    i_store_codes(out->q + at * kQuantGroup, a, b, sums, sums + out->ld);
    out->sum32[at] = sums[0] + sums[out->ld];
    out->scale[at] = scale[g - first];
    out->sum[at] = scale[g - first] * float(out->sum32[at]);
  }
  return top;
}

inline int quantize(const float* x, int64_t n, int64_t ldx, int64_t rows, const pyrt_acts* out) {
  I top = i_zero();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < out->k / kQuantGroup; g += kPanel) top = quantize_groups(x + r * ldx, n, g, out, r, top);
  return i_largest(top) >= kInfinity;
}

inline int64_t to_f16(const float* x, int64_t n, uint16_t* out) {
  int64_t overflow = 0;
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = lanes_at(n, i);
    const F v = f_load_n(x + i, m);
    if (i_largest(i_magnitude(v)) > 0x477fe000) {  // 65504
      for (int j = 0; j < m; ++j) overflow += !(__builtin_fabsf(x[i + j]) <= 65504.0f);
    }
    uint16_t h[kPanel];
    f_store_f16(h, f_max(f_min(v, f_set(65504.0f)), f_set(-65504.0f)));
    for (int j = 0; j < m; ++j) out[i + j] = h[j];
  }
  return overflow;
}

inline void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = lanes_at(n, i);
    f_store_n(x + i, f_add(f_load_n(x + i, m), f_load_n(y + i, m)), m);
  }
}

inline void scale(const float* x, float by, int64_t n, float* out) {
  const F factor = f_set(by);
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = lanes_at(n, i);
    f_store_n(out + i, f_mul(f_load_n(x + i, m), factor), m);
  }
}

// Rotary embedding (Su et al. 2021), halves layout: (a, b) -> (a cos - b sin, b cos + a sin).
inline void rope(float* x, int64_t heads, int64_t head_dim, int64_t pairs, const float* cos, const float* sin) {
  for (int64_t h = 0; h < heads; ++h, x += head_dim)
    for (int64_t i = 0; i < pairs; i += kPanel) {
      const int m = lanes_at(pairs, i);
      const F a = f_load_n(x + i, m), b = f_load_n(x + pairs + i, m);
      const F c = f_load_n(cos + i, m), s = f_load_n(sin + i, m);
      f_store_n(x + i, f_fma(a, c, f_sub(f_zero(), f_mul(b, s))), m);
      f_store_n(x + pairs + i, f_fma(b, c, f_mul(a, s)), m);
    }
}
