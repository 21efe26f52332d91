// Prompts in "fast" numerics, where the CPU has tiles: weights become bf16 once for all rows, block by block of k, and are
// multiplied with bf16 activations. Sums are f32, over k in one order, whatever the rows: TDPBF16PS as the CPU defines it.
#pragma once

constexpr int kTileRows = 16, kTileK = 32, kTileBytes = 1024;  // of bf16: [16 rows][32 k] of A, [16 k-pairs][16 n][2 k] of B
constexpr int kTileBlockK = 640;                               // k of a block: two panels of it stay in L1

// Tiles 0 to 3: C of two row tiles by two panels; 4, 5: A; 6, 7: B.
constexpr TileShapes kBf16Tiles = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// The weights of a quantized panel as tiles of B.
template <class L>
struct TilesOf {
  static constexpr int kStep = L::kRecordK;  // k that are converted at once

  static void convert(const uint8_t* panel, int64_t, int64_t k, uint8_t* to) {
    const uint8_t* record = panel + k / kStep * L::kRecord;
    F d = f_zero(), minus_dmin = f_zero();
    if constexpr (L::kTwoLevel) {
      d = f_load_f16(record);
      minus_dmin = f_sub(f_zero(), f_load_f16(record + 32));
    }
    for (int g = 0; g < L::kGroups; ++g) {
      F scale, bias;  // w = code * scale + bias
      if constexpr (L::kTwoLevel) {
        scale = f_mul(d, f_load_i8(record + L::kSubOffset + g * kPanel));
        bias = f_mul(scale, f_set(float(-L::kZero)));
        if constexpr (L::kMinima) bias = f_fma(minus_dmin, f_load_u8(record + L::kSubMinOffset + g * kPanel), bias);
      } else {
        scale = f_load_f16(record + g * kPanel * 2);
        bias = f_mul(scale, f_set(float(-L::kZero)));
        if constexpr (L::kMinima) bias = f_add(bias, f_load_f16(record + L::kMinOffset + g * kPanel * 2));
      }
      const Codes<L> codes{record + L::kHeader + g * L::kGroupBytes};
      uint8_t* pairs = to + g * (L::kGroup / 2) * 64;
      each<L::kQuads>([&](auto j) {
        const B w = codes.template quad<j.value>();
        store_bf16_pairs(pairs + 128 * j.value, f_fma(f_from_byte<0>(w), scale, bias), f_fma(f_from_byte<1>(w), scale, bias));
        store_bf16_pairs(pairs + 128 * j.value + 64, f_fma(f_from_byte<2>(w), scale, bias), f_fma(f_from_byte<3>(w), scale, bias));
      });
    }
  }
};

// The same of a bf16 panel of `cols` k, whose bits stay as they are.
template <>
struct TilesOf<LoadBF16> {
  static constexpr int kStep = 64;

  static void convert(const uint8_t* panel, int64_t cols, int64_t k, uint8_t* to) {
    for (int64_t i = k; i < k + kStep; i += 2, to += 64)
      store_bf16_pairs(to, i < cols ? LoadBF16::load(panel + i * LoadBF16::kBytes) : f_zero(),
                       i + 1 < cols ? LoadBF16::load(panel + (i + 1) * LoadBF16::kBytes) : f_zero());
  }
};

// Where a tile of C lies.
struct TileAt {
  float* c;
  int64_t stride;  // bytes
};

// C += A B for kRowTiles by kPanels tiles over `steps` tiles of k; `begin`: C = A B. `next_rows`: bytes from row tile to row tile of A.
template <int kRowTiles, int kPanels>
inline void multiply_tiles(const TileAt (*at)[2], const uint8_t* a, int64_t next_rows, const uint8_t* b, int64_t next_panel, int64_t steps,
                           bool begin) {
  each<kRowTiles>([&](auto r) {
    each<kPanels>([&](auto p) {
      constexpr int kC = 2 * r.value + p.value;
      if (begin)
        zero_tile<kC>();
      else
        load_tile<kC>(at[r.value][p.value].c, at[r.value][p.value].stride);
    });
  });
  for (int64_t i = 0; i < steps; ++i, a += kTileBytes, b += kTileBytes) {
    each<kPanels>([&](auto p) { load_tile<6 + p.value>(b + p.value * next_panel, 64); });
    each<kRowTiles>([&](auto r) {
      load_tile<4 + r.value>(a + r.value * next_rows, 64);
      each<kPanels>([&](auto p) { add_bf16_tiles<2 * r.value + p.value, 4 + r.value, 6 + p.value>(); });
    });
  }
  each<kRowTiles>([&](auto r) {
    each<kPanels>([&](auto p) { store_tile<2 * r.value + p.value>(at[r.value][p.value].c, at[r.value][p.value].stride); });
  });
}

template <int kPanels>
inline void multiply_rows(const TileAt (*at)[2], int row_tiles, const uint8_t* a, int64_t next_rows, const uint8_t* b, int64_t next_panel,
                          int64_t steps, bool begin) {
  if (row_tiles == 2)
    multiply_tiles<2, kPanels>(at, a, next_rows, b, next_panel, steps, begin);
  else
    multiply_tiles<1, kPanels>(at, a, next_rows, b, next_panel, steps, begin);
}

// One or two panels against all rows.
template <class W, int kPanels>
void tiles_of_panels(const uint8_t* w, int64_t panel_bytes, const uint16_t* x, int64_t k, int64_t rows, float* out, int64_t ldo) {
  constexpr int64_t kMostK = kTileBlockK / W::kStep * W::kStep;
  const int64_t padded = (k + 63) / 64 * 64, next_rows = padded / kTileK * kTileBytes;
  const int64_t blocks = (padded + kMostK - 1) / kMostK, steps = (padded / W::kStep + blocks - 1) / blocks * W::kStep / kTileK;
  alignas(64) uint8_t b[kPanels][kTileBlockK / kTileK * kTileBytes];
  alignas(64) float last[kPanels][kTileRows * kPanel];  // C of a row tile that is not full
  const auto* tiles = reinterpret_cast<const uint8_t*>(x);

  for (int64_t step = 0; step < padded / kTileK; step += steps) {
    const int64_t n = padded / kTileK - step < steps ? padded / kTileK - step : steps;
    for (int p = 0; p < kPanels; ++p)
      for (int64_t i = 0; i < n; i += W::kStep / kTileK)
        W::convert(w + p * panel_bytes, k, (step + i) * kTileK, b[p] + i * kTileBytes);
    for (int64_t row = 0; row < rows; row += 2 * kTileRows) {
      TileAt at[2][2];
      for (int r = 0; r < 2; ++r)
        for (int p = 0; p < kPanels; ++p) {
          const int64_t first = row + r * kTileRows;
          at[r][p] = first + kTileRows <= rows ? TileAt{out + first * ldo + p * kPanel, ldo * 4} : TileAt{last[p], 4 * kPanel};
        }
      multiply_rows<kPanels>(at, rows - row > kTileRows ? 2 : 1, tiles + row / kTileRows * next_rows + step * kTileBytes, next_rows, b[0],
                             int64_t(sizeof b[0]), n, step == 0);
    }
  }
  for (int64_t r = rows / kTileRows * kTileRows; r < rows; ++r)
    for (int p = 0; p < kPanels; ++p) f_store(out + r * ldo + p * kPanel, f_load(last[p] + r % kTileRows * kPanel));
}

template <class W>
void gemm_tiles(const uint8_t* w, int64_t panel_bytes, int64_t panels, const uint16_t* x, int64_t k, int64_t rows, float* out, int64_t ldo) {
  set_tiles(kBf16Tiles);
  int64_t p = 0;
  for (; p + 2 <= panels; p += 2) tiles_of_panels<TilesOf<W>, 2>(w + p * panel_bytes, panel_bytes, x, k, rows, out + p * kPanel, ldo);
  if (p < panels) tiles_of_panels<TilesOf<W>, 1>(w + p * panel_bytes, panel_bytes, x, k, rows, out + p * kPanel, ldo);
  release_tiles();
}

// Rows [row, row + rows) of A: [16 rows][32 k] tiles, all k of 16 rows together. x points at the first of them.
inline int to_tiles(const float* x, int64_t n, int64_t ldx, int64_t row, int64_t rows, uint16_t* out) {
  const int64_t padded = (n + 63) / 64 * 64;
  I top = i_zero();
  for (int64_t r = row; r < row + rows; ++r, x += ldx) {
    uint16_t* to = out + r / kTileRows * kTileRows * padded + r % kTileRows * kTileK;
    for (int64_t i = 0; i < padded; i += kPanel) {
      const F v = i < n ? f_load_n(x + i, lanes_at(n, i)) : f_zero();
      top = i_max(top, i_magnitude(v));
      store_bf16(to + i / kTileK * (kTileRows * kTileK) + i % kTileK, v);
    }
  }
  return i_largest(top) >= kInfinity;
}

// The exact kernels multiply by tiles too.
template <class L>
void gemm_quant_tiles(const uint8_t* w, int64_t panel_bytes, int64_t panels, int64_t ahead, const pyrt_acts* x, int64_t rows, float* out, int64_t ldo) {
  if (rows < 8) return gemm_quant<L>(w, panel_bytes, panels, ahead, x, rows, out, ldo);
  set_tiles(kInt8Tiles);
  gemm_quant<L>(w, panel_bytes, panels, ahead, x, rows, out, ldo);
  release_tiles();
}
