// Attention of prompts in "fast" numerics by bf16 tiles: the steps, masks and sums of attention.inl.h, sixteen rows at once.
// Scores and weights are rounded to bf16 where a tile takes them; m and l stay f32. A row depends on no other.
#pragma once

constexpr int kMostHead = 256;  // wider heads go the other way

// Keys and values of a step as tiles of B.
struct StepTiles {
  alignas(64) uint8_t k[kMostHead / kTileK][kStep / kPanel][kTileBytes];  // [16 pairs of dimensions][16 keys][2]
  alignas(64) uint8_t v[kStep / kTileK][kMostHead / kPanel][kTileBytes];  // [16 pairs of keys][16 channels][2]
};

template <class Kv>
inline void convert_step(const AttnStep& step, int64_t d, StepTiles& to) {
  for (int n = 0; n < step.n; ++n) {
    const uint8_t* block = step.blocks[n];
    for (int64_t i = 0; i < (d + kTileK - 1) / kTileK * kTileK; i += 2)
      for (int h = 0; h < 2; ++h)
        store_bf16_pairs(to.k[i / kTileK][2 * n + h] + i % kTileK * 32, i < d ? Kv::k(block, i, h * kPanel) : f_zero(),
                         i < d ? Kv::k(block, i + 1, h * kPanel) : f_zero());
    for (int64_t t = 0; t < kBlock; t += 2)
      for (int64_t c = 0; c < d; c += kPanel) store_bf16_pairs(to.v[n][c / kPanel] + t * 32, Kv::v(block, d, t, c), Kv::v(block, d, t + 1, c));
  }
}

// C[j] += sum over i of A[i] B[i][j], for kCount tiles of C side by side.
template <int kCount>
inline void multiply_side(float* c, int64_t stride, const uint16_t* a, const uint8_t* b, int64_t next_b, int64_t steps, bool begin) {
  each<kCount>([&](auto j) {
    if (begin)
      zero_tile<j.value>();
    else
      load_tile<j.value>(c + j.value * kPanel, stride);
  });
  for (int64_t i = 0; i < steps; ++i) {
    load_tile<4>(a + i * (kTileRows * kTileK), 64);
    each<kCount>([&](auto j) {
      load_tile<6 + j.value % 2>(b + i * next_b + j.value * kTileBytes, 64);
      add_bf16_tiles<j.value, 4, 6 + j.value % 2>();
    });
  }
  each<kCount>([&](auto j) { store_tile<j.value>(c + j.value * kPanel, stride); });
}

// The same for `count` tiles of C.
inline void multiply_across(float* c, int64_t stride, const uint16_t* a, const uint8_t* b, int64_t next_b, int64_t steps, int64_t count, bool begin) {
  for (; count >= 4; count -= 4, c += 4 * kPanel, b += 4 * kTileBytes) multiply_side<4>(c, stride, a, b, next_b, steps, begin);
  for (; count > 0; --count, c += kPanel, b += kTileBytes) multiply_side<1>(c, stride, a, b, next_b, steps, begin);
}

// Rows [row, row + 16) of the call; those in [first, last) see something of the step.
template <class Kv>
inline void attend_rows(const pyrt_attn* a, const AttnStep& step, const StepTiles& tiles, int64_t row, int64_t first, int64_t last) {
  const int rows = a->rows - row < kTileRows ? int(a->rows - row) : kTileRows;
  const int64_t d = a->d, head_tiles = (d + kTileK - 1) / kTileK;
  alignas(64) uint16_t q[kMostHead / kTileK][kTileRows][kTileK], weights[kStep / kTileK][kTileRows][kTileK];
  alignas(64) float p[kTileRows][kStep], part[kTileRows][kMostHead];
  for (int r = 0; r < rows; ++r)
    for (int64_t i = 0; i < head_tiles * kTileK; i += kPanel)
      store_bf16(q[i / kTileK][r] + i % kTileK, i < d ? f_load(a->q + (row + r) * d + i) : f_zero());
  multiply_across(p[0], sizeof p[0], q[0][0], tiles.k[0][0], sizeof tiles.k[0], head_tiles, 2 * step.n, true);

  float* o = rows == kTileRows ? a->o + row * d : part[0];
  const int64_t ld = rows == kTileRows ? d : kMostHead;
  for (int r = 0; r < kTileRows; ++r) {
    const bool sees = row + r >= first && row + r < last;
    float alpha = 1;
    if (sees) {
      if constexpr (Kv::kScaled)
        for (int v = 0; v < 2 * step.n; ++v)
          f_store(p[r] + v * kPanel, f_mul(f_load(p[r] + v * kPanel), Kv::k_scale(step.blocks[v / 2], d, v % 2 * kPanel)));
      alpha = soften<Kv>(a, row + r, step, p[r]);
    }
    for (int v = 0; v < 2 * step.n; ++v) store_bf16(weights[v / 2][r] + v % 2 * kPanel, sees ? f_load(p[r] + v * kPanel) : f_zero());
    for (int64_t c = 0; c < d && r < rows; c += kPanel)
      f_store(o + r * ld + c, f_add(f_mul(f_load(a->o + (row + r) * d + c), f_set(alpha)), f_zero()));  // -0 becomes 0
  }
  multiply_across(o, ld * 4, weights[0][0], tiles.v[0][0], sizeof tiles.v[0], step.n, d / kPanel, false);
  for (int r = 0; r < rows && o == part[0]; ++r)
    for (int64_t c = 0; c < d; c += kPanel) f_store(a->o + (row + r) * d + c, f_load(part[r] + c));
}

template <class Kv>
void attention_tiles(const pyrt_attn* a) {
  if (a->d > kMostHead) return attention<Kv>(a);
  StepTiles tiles;
  set_tiles(kBf16Tiles);
  for_each_step(a, [&](const AttnStep& step, int64_t first, int64_t last) {
    if (first == last) return;
    convert_step<Kv>(step, a->d, tiles);
    for (int64_t row = first / kTileRows * kTileRows; row < last; row += kTileRows) attend_rows<Kv>(a, step, tiles, row, first, last);
  });
  release_tiles();
}
