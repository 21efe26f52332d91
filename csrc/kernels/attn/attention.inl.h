// Attention over blocks of 32 keys with online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): no n x n table.
// For each row and visible block: s = scale * K q; m' = max(m, max s); p = e^(s - m'); l = l e^(m - m') + sum p;
// o = o e^(m - m') + p V, tokens ascending. A block that a row does not see at all leaves that row untouched.
#pragma once

constexpr int kBlock = 32;

struct KvF32 {
  static F k(const uint8_t* block, int64_t, int64_t i, int h) { return f_load(reinterpret_cast<const float*>(block) + i * kBlock + h * kPanel); }
  static F v(const uint8_t* block, int64_t d, int64_t t, int64_t c) { return f_load(reinterpret_cast<const float*>(block) + (kBlock + t) * d + c); }
  static constexpr bool kScaled = false;
};
struct KvF16 {
  static F k(const uint8_t* block, int64_t, int64_t i, int h) { return f_load_f16(block + (i * kBlock + h * kPanel) * 2); }
  static F v(const uint8_t* block, int64_t d, int64_t t, int64_t c) { return f_load_f16(block + (kBlock * d + t * d + c) * 2); }
  static constexpr bool kScaled = false;
};
struct KvInt8 {
  static F k(const uint8_t* block, int64_t, int64_t i, int h) { return f_load_i8(block + i * kBlock + h * kPanel); }
  static F v(const uint8_t* block, int64_t d, int64_t t, int64_t c) { return f_load_i8(block + kBlock * d + t * d + c); }
  static constexpr bool kScaled = true;
  static F k_scale(const uint8_t* block, int64_t d, int h) { return f_load(reinterpret_cast<const float*>(block + 2 * kBlock * d) + h * kPanel); }
  static F v_scale(const uint8_t* block, int64_t d, int h) { return f_load(reinterpret_cast<const float*>(block + 2 * kBlock * d) + kBlock + h * kPanel); }
};

// Scores of rows [r0, r0 + kRows) against a block, into p [kRows][32].
template <class Kv, int kRows>
inline void scores(const pyrt_attn* a, const uint8_t* block, int64_t r0, float (*p)[kBlock]) {
  F s[kRows][2];
  for (int r = 0; r < kRows; ++r) s[r][0] = s[r][1] = f_zero();
  const float* q = a->q + r0 * a->d;
  for (int64_t i = 0; i < a->d; ++i) {
    const F k0 = Kv::k(block, a->d, i, 0), k1 = Kv::k(block, a->d, i, 1);
    for (int r = 0; r < kRows; ++r) {
      const F x = f_set(q[r * a->d + i]);
      s[r][0] = f_fma(x, k0, s[r][0]);
      s[r][1] = f_fma(x, k1, s[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int h = 0; h < 2; ++h) {
      if constexpr (Kv::kScaled) s[r][h] = f_mul(s[r][h], Kv::k_scale(block, a->d, h));
      f_store(p[r] + h * kPanel, s[r][h]);
    }
}

// Scores become weights; m and l move on. Returns what the row's o has to be multiplied with.
inline float soften(const pyrt_attn* a, int64_t r, int64_t block_start, float* p) {
  const float lowest = -__builtin_inff();
  const int64_t low = a->begin[r] - block_start, high = a->end[r] - block_start;
  F s[2] = {f_load(p), f_load(p + kPanel)};
  if (low > 0 || high < kBlock)
    for (int h = 0; h < 2; ++h) {
      const int64_t lo = low - h * kPanel, hi = high - h * kPanel;
      s[h] = f_keep_range(s[h], lo < 0 ? 0 : lo > kPanel ? kPanel : int(lo), hi < 0 ? 0 : hi > kPanel ? kPanel : int(hi), lowest);
    }
  const float top = f_largest(f_max(s[0], s[1]));
  const float m = a->m[r] > top ? a->m[r] : top;
  const F shift = f_set(m);
  s[0] = exp_lanes(f_sub(s[0], shift));
  s[1] = exp_lanes(f_sub(s[1], shift));
  f_store(p, s[0]);
  f_store(p + kPanel, s[1]);
  float alpha[kPanel];
  f_store(alpha, exp_lanes(f_sub(f_set(a->m[r]), shift)));
  a->l[r] = a->l[r] * alpha[0] + f_sum(f_add(s[0], s[1]));
  a->m[r] = m;
  return alpha[0];
}

template <class Kv, int kRows>
inline void attend(const pyrt_attn* a, const uint8_t* block, int64_t block_start, int64_t r0) {
  float p[kRows][kBlock], alpha[kRows];
  scores<Kv, kRows>(a, block, r0, p);
  for (int r = 0; r < kRows; ++r) {
    alpha[r] = soften(a, r0 + r, block_start, p[r]);
    if constexpr (Kv::kScaled)
      for (int h = 0; h < 2; ++h) f_store(p[r] + h * kPanel, f_mul(f_load(p[r] + h * kPanel), Kv::v_scale(block, a->d, h)));
  }
  float* o = a->o + r0 * a->d;
  for (int64_t c = 0; c < a->d; c += kPanel) {
    F sum[kRows];
    for (int r = 0; r < kRows; ++r) sum[r] = f_mul(f_load(o + r * a->d + c), f_set(alpha[r]));
    for (int t = 0; t < kBlock; ++t) {
      const F v = Kv::v(block, a->d, t, c);
      for (int r = 0; r < kRows; ++r) sum[r] = f_fma(f_set(p[r][t]), v, sum[r]);
    }
    for (int r = 0; r < kRows; ++r) f_store(o + r * a->d + c, sum[r]);
  }
}

template <class Kv>
void attention(const pyrt_attn* a) {
  for (int64_t r = 0; r < a->rows; ++r) {
    a->m[r] = -__builtin_inff();
    a->l[r] = 0;
    for (int64_t c = 0; c < a->d; c += kPanel) f_store(a->o + r * a->d + c, f_zero());
  }
  int64_t first = 0;
  for (int64_t b = a->block0; b < a->block1; ++b) {
    const int64_t start = b * kBlock;
    const uint8_t* block = static_cast<const uint8_t*>(a->blocks[b - a->block0]);
    while (first < a->rows && a->end[first] <= start) ++first;
    int64_t last = a->rows;
    while (last > first && a->begin[last - 1] >= start + kBlock) --last;
    int64_t r = first;  // begin and end ascend: the rows that see something of this block stand together
    for (; r + kAttnRows <= last; r += kAttnRows) attend<Kv, kAttnRows>(a, block, start, r);
    for (; r < last; ++r) attend<Kv, 1>(a, block, start, r);
  }
}

inline void attn_merge(float* m, float* l, float* o, float m2, float l2, const float* o2, int64_t d) {
  const float top = *m > m2 ? *m : m2;
  float weights[2][kPanel];
  f_store(weights[0], exp_lanes(f_sub(f_set(*m), f_set(top))));
  f_store(weights[1], exp_lanes(f_sub(f_set(m2), f_set(top))));
  const F w1 = f_set(weights[0][0]), w2 = f_set(weights[1][0]);
  *m = top;
  *l = *l * weights[0][0] + l2 * weights[1][0];
  for (int64_t c = 0; c < d; c += kPanel) f_store(o + c, f_fma(f_load(o + c), w1, f_mul(f_load(o2 + c), w2)));
}
