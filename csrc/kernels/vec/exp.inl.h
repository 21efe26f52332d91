// Elementary functions on the sixteen-lane vector: the same bits on every ISA.
#pragma once

// e^x for x <= 88 (larger is taken as 88), exactly 0 below -80 and exactly 1 at 0; relative error below 1.2e-7.
// x = n ln 2 + r, |r| < 0.3466; Taylor to r^7 leaves 5e-9.
inline F exp_lanes(F x) {
  const F clamped = f_max(f_min(x, f_set(88.0f)), f_set(-87.0f));
  const I n = i_round(f_mul(clamped, f_set(0x1.715476p+0f)));
  const F whole = f_sub(f_zero(), f_from_i(n));
  const F r = f_fma(whole, f_set(-0x1.05c61p-29f), f_fma(whole, f_set(0x1.62e43p-1f), clamped));
  F p = f_set(1.0f / 5040);
  constexpr float kTaylor[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  for (float t : kTaylor) p = f_fma(p, r, f_set(t));
  return f_select_ge(x, f_set(-80.0f), f_mul(p, f_pow2(n)), f_zero());
}

// silu(x) = x / (1 + e^-x)
inline F silu_lanes(F x) { return f_div(x, f_add(f_set(1.0f), exp_lanes(f_sub(f_zero(), x)))); }

// gelu, tanh form: x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
inline F gelu_tanh_lanes(F x) {
  const F u = f_mul(x, f_fma(f_mul(x, x), f_set(0.044715f), f_set(1.0f)));
  return f_div(x, f_add(f_set(1.0f), exp_lanes(f_mul(u, f_set(-1.5957691216f)))));  // -2 sqrt(2/pi)
}

// gelu, exact form: x Phi(x). Phi(-|x|) = erfc(z)/2 with z = |x| / sqrt 2, erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + 0.4 z):
// our least-squares fit on 0 <= z <= 9.5, relative error 6e-8.
inline F gelu_erf_lanes(F x) {
  const F z = f_mul(f_abs(x), f_set(0.70710678119f));
  const F t = f_div(f_set(1.0f), f_fma(z, f_set(0.4f), f_set(1.0f)));
  F p = f_set(0x1.4f1e42p-5f);
  constexpr float kFit[] = {-0x1.1bb81cp-3f, 0x1.47e63p-4f,  0x1.7c05b6p-4f, 0x1.381248p-4f,
                            0x1.8f69dep-3f,  0x1.9c8b9ap-3f, 0x1.cfe4fp-3f,  0x1.ce1714p-3f};
  for (float c : kFit) p = f_fma(p, t, f_set(c));
  const F below = f_mul(f_mul(f_mul(p, t), f_set(0.5f)), exp_lanes(f_sub(f_zero(), f_mul(z, z))));
  return f_mul(x, f_select_ge(x, f_zero(), f_sub(f_set(1.0f), below), below));
}

using Unary = F (*)(F);

template <Unary kAct>
void act_times(const float* g, const float* u, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = n - i < kPanel ? int(n - i) : kPanel;
    F y = kAct(f_load_n(g + i, m));
    if (u) y = f_mul(y, f_load_n(u + i, m));
    f_store_n(out + i, y, m);
  }
}

inline void exp_array(const float* x, int64_t n, float* out) { act_times<exp_lanes>(x, nullptr, n, out); }

inline void max_sum_exp(const float* x, int64_t n, float scale, float* max, float* sum) {
  const float lowest = -__builtin_inff();
  F top = f_set(lowest);
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = n - i < kPanel ? int(n - i) : kPanel;
    top = f_max(f_keep_range(f_mul(f_load_n(x + i, m), f_set(scale)), 0, m, lowest), top);
  }
  *max = f_largest(top);
  if (*max == lowest) {  // nothing here can be chosen
    *sum = 0;
    return;
  }
  F total = f_zero();
  for (int64_t i = 0; i < n; i += kPanel) {
    const int m = n - i < kPanel ? int(n - i) : kPanel;
    const F shifted = f_sub(f_mul(f_load_n(x + i, m), f_set(scale)), f_set(*max));
    total = f_add(total, exp_lanes(f_keep_range(shifted, 0, m, lowest)));
  }
  *sum = f_sum(total);
}
