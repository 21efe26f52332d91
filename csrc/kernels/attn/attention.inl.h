// Attention with online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): no n x n table. Keys come in blocks of 32 and
// are taken in steps of 128, counted from position 0. For each row and step that it sees something of:
//   s = scale * K q; m' = max(m, max s); p = e^(s - m'); l = l e^(m - m') + sum p; o = o e^(m - m') + p V, tokens ascending.
#pragma once

constexpr int kBlock = 32, kStep = 128, kStepBlocks = kStep / kBlock;
constexpr int kLanes = kPanel / kParts, kBlockParts = kBlock / kLanes;  // of a part; parts of a block's keys

struct KvF32 {
  static constexpr int kBytes = 4;
  static P k(const uint8_t* block, int64_t i, int key) { return p_load(reinterpret_cast<const float*>(block) + i * kBlock + key); }
  static P v(const uint8_t* block, int64_t d, int64_t t, int64_t c) { return p_load(reinterpret_cast<const float*>(block) + (kBlock + t) * d + c); }
  static constexpr bool kScaled = false;
};
struct KvF16 {
  static constexpr int kBytes = 2;
  static P k(const uint8_t* block, int64_t i, int key) { return p_load_f16(block + (i * kBlock + key) * 2); }
  static P v(const uint8_t* block, int64_t d, int64_t t, int64_t c) { return p_load_f16(block + (kBlock * d + t * d + c) * 2); }
  static constexpr bool kScaled = false;
};
struct KvInt8 {
  static constexpr int kBytes = 1;
  static P k(const uint8_t* block, int64_t i, int key) { return p_load_i8(block + i * kBlock + key); }
  static P v(const uint8_t* block, int64_t d, int64_t t, int64_t c) { return p_load_i8(block + kBlock * d + t * d + c); }
  static constexpr bool kScaled = true;
  static P k_scale(const uint8_t* block, int64_t d, int key) { return p_load(reinterpret_cast<const float*>(block + 2 * kBlock * d) + key); }
  static F v_scale(const uint8_t* block, int64_t d, int h) { return f_load(reinterpret_cast<const float*>(block + 2 * kBlock * d) + kBlock + h * kPanel); }
};

// The blocks of one step that any row sees.
struct AttnStep {
  const uint8_t* blocks[kStepBlocks];
  const uint8_t* next[kStepBlocks];  // those that come after, as many as are known; else these again
  int64_t start;                     // position of the first key
  int n;                             // blocks
};

// Rows up to which a step waits for memory more than it computes.
constexpr int kFewRows = 4;

template <int kBytes> inline void prefetch_bytes(const uint8_t* p) {
  for (int b = 0; b < kBytes; b += 64) prefetch(p + b);
}

// How many parts, of kLanes keys or channels each, are summed at once for so many rows.
constexpr int attn_width(int rows) {
  int width = kStep / kLanes;
  while (width > 1 && rows * width > kAttnSums) width /= 2;
  return width;
}

// sum[r][w] += x(r) * y(w), with the fewer factors in registers.
template <int kRows, int kWidth, class X, class Y>
__attribute__((always_inline)) inline void outer_product(const X& x, const Y& y, P (*sum)[kWidth]) {
  if constexpr (kRows <= kWidth) {
    P kept[kRows];
    each<kRows>([&](auto r) { kept[r.value] = x(r.value); });
    each<kWidth>([&](auto w) {
      const P f = y(w.value);
      each<kRows>([&](auto r) { sum[r.value][w.value] = p_fma(kept[r.value], f, sum[r.value][w.value]); });
    });
  } else {
    P kept[kWidth];
    each<kWidth>([&](auto w) { kept[w.value] = y(w.value); });
    each<kRows>([&](auto r) {
      const P f = x(r.value);
      each<kWidth>([&](auto w) { sum[r.value][w.value] = p_fma(f, kept[w.value], sum[r.value][w.value]); });
    });
  }
}

// Scores of kRows rows against the parts [from, n) of the step's keys, into p.
template <class Kv, int kRows, int kWidth = attn_width(kRows)>
inline void scores(const AttnStep& step, const float* q, int64_t d, int from, int n, float (*p)[kStep]) {
  constexpr int kBlocks = (kWidth + kBlockParts - 1) / kBlockParts;
  for (; from + kWidth <= n; from += kWidth) {
    P s[kRows][kWidth];
    each<kRows>([&](auto r) { each<kWidth>([&](auto w) { s[r.value][w.value] = p_set(0.0f); }); });
    const uint8_t* blocks[kBlocks];
    for (int b = 0; b < kBlocks; ++b) blocks[b] = step.blocks[from / kBlockParts + b];
    const int first = from % kBlockParts;  // 0 where whole blocks are taken
    for (int64_t i = 0; i < d; ++i) {
      if (kRows <= kFewRows && first == 0)
        for (int b = 0; b < kBlocks; ++b) prefetch_bytes<kBlock * Kv::kBytes>(blocks[b] + (d + i) * kBlock * Kv::kBytes);  // V
      outer_product<kRows, kWidth>([&](int r) { return p_set(q[r * d + i]); },
                                   [&](int w) { return Kv::k(blocks[w / kBlockParts], i, (first + w % kBlockParts) * kLanes); }, s);
    }
    each<kWidth>([&](auto w) {
      each<kRows>([&](auto r) {
        P& sum = s[r.value][w.value];
        if constexpr (Kv::kScaled) sum = p_mul(sum, Kv::k_scale(blocks[w.value / kBlockParts], d, (first + w.value % kBlockParts) * kLanes));
        p_store(p[r.value] + (from + w.value) * kLanes, sum);
      });
    });
  }
  if constexpr (kWidth > kBlockParts) scores<Kv, kRows, kWidth / 2>(step, q, d, from, n, p);
}

// Scores become weights; m and l move on. Returns what the row's o has to be multiplied with.
template <class Kv>
inline float soften(const pyrt_attn* a, int64_t r, const AttnStep& step, float* p) {
  const float lowest = -__builtin_inff();
  const int64_t low = a->begin[r] - step.start, high = a->end[r] - step.start;
  const int n = step.n * 2;
  F top = f_set(lowest);
  for (int v = 0; v < n; ++v) {
    F s = f_load(p + v * kPanel);
    const int64_t lo = low - v * kPanel, hi = high - v * kPanel;
    if (lo > 0 || hi < kPanel) {
      s = f_keep_range(s, lo < 0 ? 0 : lo > kPanel ? kPanel : int(lo), hi < 0 ? 0 : hi > kPanel ? kPanel : int(hi), lowest);
      f_store(p + v * kPanel, s);
    }
    top = f_max(s, top);
  }
  const float highest = f_largest(top), m = a->m[r] > highest ? a->m[r] : highest;
  const F shift = f_set(m);
  F total = f_zero();
  for (int v = 0; v < n; ++v) {
    F e = exp_lanes(f_sub(f_load(p + v * kPanel), shift));
    total = f_add(total, e);
    if constexpr (Kv::kScaled) e = f_mul(e, Kv::v_scale(step.blocks[v / 2], a->d, v % 2));
    f_store(p + v * kPanel, e);
  }
  float alpha[kPanel];
  f_store(alpha, exp_lanes(f_sub(f_set(a->m[r]), shift)));
  a->l[r] = a->l[r] * alpha[0] + f_sum(total);
  a->m[r] = m;
  return alpha[0];
}

// o = o * alpha + p V for the keys [low, high) of the step and the channels from c on.
template <class Kv, int kRows, int kWidth = attn_width(kRows)>
inline void weigh(const AttnStep& step, int low, int high, const float (*p)[kStep], const float* alpha, int64_t d, int64_t c, float* o) {
  for (; c + kWidth * kLanes <= d; c += kWidth * kLanes) {
    P sum[kRows][kWidth];
    each<kRows>([&](auto r) {
      each<kWidth>([&](auto w) {
        sum[r.value][w.value] = p_mul(p_load(o + r.value * d + c + w.value * kLanes), p_set(alpha[r.value]));
      });
    });
    for (int t = low; t < high;) {
      const uint8_t* block = step.blocks[t / kBlock];
      const int past = (t / kBlock + 1) * kBlock < high ? (t / kBlock + 1) * kBlock : high;
      const uint8_t* next = step.next[t / kBlock];
      for (; t < past; ++t) {
        if constexpr (kRows <= kFewRows) prefetch_bytes<kWidth * kLanes * Kv::kBytes>(next + ((t % kBlock) * d + c) * Kv::kBytes);  // K
        outer_product<kRows, kWidth>([&](int r) { return p_set(p[r][t]); },
                                     [&](int w) { return Kv::v(block, d, t % kBlock, c + w * kLanes); }, sum);
      }
    }
    // -0 becomes 0, so that it does not matter how many masked keys, of weight 0, were passed.
    each<kRows>([&](auto r) {
      each<kWidth>([&](auto w) { p_store(o + r.value * d + c + w.value * kLanes, p_add(sum[r.value][w.value], p_set(0.0f))); });
    });
  }
  if constexpr (kWidth > 1) weigh<Kv, kRows, kWidth / 2>(step, low, high, p, alpha, d, c, o);
}

// Rows [r, last), all of which see something of the step: kRows at a time, then fewer.
template <class Kv, int kRows = kAttnRows>
inline void attend(const pyrt_attn* a, const AttnStep& step, int64_t r, int64_t last) {
  for (; r + kRows <= last; r += kRows) {
    alignas(64) float p[kRows][kStep];
    float alpha[kRows];
    scores<Kv, kRows>(step, a->q + r * a->d, a->d, 0, step.n * kBlockParts, p);
    for (int i = 0; i < kRows; ++i) alpha[i] = soften<Kv>(a, r + i, step, p[i]);
    const int64_t low = a->begin[r] - step.start, high = a->end[r + kRows - 1] - step.start;
    const int past = step.n * kBlock;
    weigh<Kv, kRows>(step, low < 0 ? 0 : int(low), high > past ? past : int(high), p, alpha, a->d, 0, a->o + r * a->d);
  }
  if constexpr (kRows > 1) attend<Kv, (kRows > 4 ? 4 : kRows - 1)>(a, step, r, last);
}

// fn(step, first row, last row): the rows that see something of the step stand together, since begin and end ascend.
template <class Fn>
inline void for_each_step(const pyrt_attn* a, const Fn& fn) {
  for (int64_t r = 0; r < a->rows; ++r) {
    a->m[r] = -__builtin_inff();
    a->l[r] = 0;
    for (int64_t c = 0; c < a->d; c += kPanel) f_store(a->o + r * a->d + c, f_zero());
  }
  int64_t first = 0, next;
  for (int64_t b = a->block0; b < a->block1; b = next) {
    next = (b / kStepBlocks + 1) * kStepBlocks < a->block1 ? (b / kStepBlocks + 1) * kStepBlocks : a->block1;
    AttnStep step = {{}, {}, b * kBlock, int(next - b)};
    for (int i = 0; i < step.n; ++i) {
      const int64_t at = b - a->block0 + i, after = at + step.n < a->block1 - a->block0 ? at + step.n : at;
      step.blocks[i] = static_cast<const uint8_t*>(a->blocks[at]);
      step.next[i] = static_cast<const uint8_t*>(a->blocks[after]);
    }
    while (first < a->rows && a->end[first] <= step.start) ++first;
    int64_t last = a->rows;
    while (last > first && a->begin[last - 1] >= next * kBlock) --last;
    fn(step, first, last);
  }
}

template <class Kv>
void attention(const pyrt_attn* a) {
  for_each_step(a, [&](const AttnStep& step, int64_t first, int64_t last) { attend<Kv>(a, step, first, last); });
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
