// The bf16 tile kernels of "fast" prompts, products and attention, against sums in double, on machines that have tiles; elsewhere it says so.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "expect.h"
#include "kernels/table.h"
#include "packed/packed.h"

namespace {

using namespace pyrt;

uint64_t state = 20261207;
uint32_t next_bits() {  // Knuth's MMIX generator, upper half
  state = state * 6364136223846793005u + 1442695040888963407u;
  return uint32_t(state >> 32);
}
float next_float(float scale) { return float(int32_t(next_bits()) >> 8) * (scale * 0x1p-23f); }

// To the nearest bf16, ties away from zero.
float rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x8000) & 0xffff0000;
  std::memcpy(&x, &bits, 4);
  return x;
}

struct Case {
  const char* format;
  pyrt_gemm_tiles kernel;
  std::vector<size_t> scales;  // where a block has f16 scales
};

constexpr int kPanels = 3, kLdo = kPanels * kPanel + 5;

std::vector<uint8_t> random_rows(const Format& format, const Case& c, int64_t rows, int64_t cols) {
  std::vector<uint8_t> data(size_t(rows * format.row_bytes(cols)));
  for (uint8_t& byte : data) byte = uint8_t(next_bits());
  for (size_t block = 0; block < data.size() && !format.is_float; block += size_t(format.block_bytes))
    for (size_t at : c.scales) {
      const uint16_t h = f32_to_f16(next_float(0.1f));
      std::memcpy(&data[block + at], &h, 2);
    }
  if (!format.is_float) return data;
  std::vector<float> values(size_t(rows * cols));
  for (float& v : values) v = next_float(1);
  encode_row(format, values.data(), rows * cols, data.data());
  return data;
}

void check(const pyrt_kernels& t, const Case& c, int64_t cols) {
  const Format& format = *find_format(c.format);
  const LayoutInfo& layout = layout_info(format.layout);
  const int64_t panel_bytes = layout.panel_bytes(cols), padded = (cols + 63) / 64 * 64;
  const std::vector<uint8_t> stored = random_rows(format, c, kPanels * kPanel, cols);
  std::vector<uint8_t> panels(size_t(kPanels * panel_bytes));
  std::vector<float> w(size_t(kPanels * kPanel * cols));
  for (int p = 0; p < kPanels; ++p) {
    const uint8_t* rows[kPanel];
    for (int n = 0; n < kPanel; ++n) rows[n] = &stored[size_t((p * kPanel + n) * format.row_bytes(cols))];
    EXPECT(format.pack_panel(rows, cols, &panels[size_t(p * panel_bytes)]));
    for (int n = 0; n < kPanel; ++n) format.decode(rows[n], cols, &w[size_t((p * kPanel + n) * cols)]);
  }
  std::vector<float> first;  // rows of the largest batch
  for (int rows : {50, 33, 32, 17, 16, 1}) {
    const int64_t ldx = cols + 3;
    state = 7;
    std::vector<float> x(size_t(rows * ldx));
    for (float& v : x) v = next_float(3);
    std::vector<uint16_t> tiles(size_t((rows + 15) / 16 * 16 * padded), 0x7fc0);  // what is beyond the rows may be anything
    const int half = rows / 3;
    EXPECT_EQ(t.to_tiles(x.data(), cols, ldx, 0, half, tiles.data()), 0);
    EXPECT_EQ(t.to_tiles(x.data() + half * ldx, cols, ldx, half, rows - half, tiles.data()), 0);
    std::vector<float> out(size_t(rows * kLdo), -7.0f);
    c.kernel(panels.data(), panel_bytes, kPanels, tiles.data(), cols, rows, out.data(), kLdo);
    if (first.empty()) first = out;
    for (int r = 0; r < rows; ++r) {
      EXPECT(std::equal(&out[size_t(r * kLdo)], &out[size_t(r * kLdo)] + kLdo, &first[size_t(r * kLdo)]));  // whatever the other rows
      for (int n = kPanels * kPanel; n < kLdo; ++n) EXPECT_EQ(out[size_t(r * kLdo + n)], -7.0f);
      for (int n = 0; n < kPanels * kPanel; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const double term = double(w[size_t(n * cols + k)]) * rounded(x[size_t(r * ldx + k)]);
          sum += term;
          size += std::fabs(term);
        }
        // Half a unit of bf16's eight bits for each weight, and of f32's for each sum.
        const double bound = size * (0x1.1p-9 + double(cols) * 0x1p-24);
        if (std::fabs(double(out[size_t(r * kLdo + n)]) - sum) <= bound) continue;
        expect(false, __FILE__, __LINE__, std::string(c.format) + " near its sum");
        return;
      }
    }
  }
  std::vector<float> bad(size_t(cols), 1.0f);
  std::vector<uint16_t> tiles(size_t(16 * padded));
  bad.back() = INFINITY;
  EXPECT(t.to_tiles(bad.data(), cols, cols, 0, 1, tiles.data()) != 0);
}

struct Keys {
  int bytes;  // an element
  void (*kernel)(const pyrt_attn*);
};

constexpr int kBlocks = 9, kQueries = 37;
constexpr int64_t kFirstBlock = 2;  // the call begins amid a step

// Key or value `i` of a block, as the cache stores it.
double element(const Keys& keys, const uint8_t* block, int64_t i) {
  if (keys.bytes == 4) {
    float x;
    std::memcpy(&x, block + 4 * i, 4);
    return x;
  }
  uint16_t half;
  if (keys.bytes == 1) return int8_t(block[i]);
  std::memcpy(&half, block + 2 * i, 2);
  return f16_to_f32(half);
}

void check_attention(const Keys& keys, int64_t d) {
  const int64_t scales = 64 * d * keys.bytes;
  std::vector<std::vector<uint8_t>> blocks(kBlocks, std::vector<uint8_t>(size_t(scales + 256)));
  const void* pointers[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    uint8_t* block = blocks[size_t(b)].data();
    pointers[b] = block;
    for (int64_t i = 0; i < 64 * d; ++i) {
      const float x = next_float(1);
      const uint16_t half = f32_to_f16(x);
      if (keys.bytes == 4) std::memcpy(block + 4 * i, &x, 4);
      if (keys.bytes == 2) std::memcpy(block + 2 * i, &half, 2);
      if (keys.bytes == 1) block[i] = uint8_t(int8_t(127 * x));
    }
    for (int i = 0; i < 64; ++i) {
      const float x = (1 + next_float(0.3f)) / 127;
      std::memcpy(block + scales + 4 * i, &x, 4);
    }
  }
  const auto scale = [&](const uint8_t* block, int i) {
    float x = 1;
    if (keys.bytes == 1) std::memcpy(&x, block + scales + 4 * i, 4);
    return double(x);
  };
  std::vector<float> q(size_t(kQueries * d));
  for (float& x : q) x = next_float(3.0f / float(d));
  std::vector<int64_t> begin, end;
  for (int64_t r = 0; r < kQueries; ++r) {
    begin.push_back(r < 20 ? 0 : 32 * kFirstBlock + 4 * r);
    end.push_back(32 * kFirstBlock + (r < 2 ? 0 : 1 + 7 * r));  // the first two see nothing
  }
  std::vector<float> m(kQueries), l(kQueries), o(size_t(kQueries * d));
  const auto run = [&](int64_t first, int64_t rows, float* to_m, float* to_l, float* to_o) {
    const pyrt_attn call = {rows, d, &q[size_t(first * d)], &begin[size_t(first)], &end[size_t(first)], kFirstBlock, kFirstBlock + kBlocks, pointers, to_m, to_l, to_o};
    keys.kernel(&call);
  };
  run(0, kQueries, m.data(), l.data(), o.data());
  for (int64_t r = 0; r < kQueries; ++r) {
    std::vector<double> score, size;
    std::vector<int64_t> at;
    for (int64_t key = std::max(begin[size_t(r)], 32 * kFirstBlock); key < end[size_t(r)]; ++key) {
      const uint8_t* block = blocks[size_t(key / 32 - kFirstBlock)].data();
      double sum = 0, terms = 0;
      for (int64_t i = 0; i < d; ++i) {
        const double term = q[size_t(r * d + i)] * element(keys, block, i * 32 + key % 32) * scale(block, int(key % 32));
        sum += term;
        terms += std::fabs(term);
      }
      at.push_back(key);
      score.push_back(sum);
      size.push_back(terms);
    }
    if (at.empty()) {
      EXPECT(m[size_t(r)] == -INFINITY && l[size_t(r)] == 0);
      for (int64_t c = 0; c < d; ++c) EXPECT_EQ(o[size_t(r * d + c)], 0.0f);
      continue;
    }
    // Queries, keys, weights and values are each off by up to 2^-9 of themselves.
    const double top = *std::max_element(score.begin(), score.end()), error = 0x1.1p-8 * *std::max_element(size.begin(), size.end());
    EXPECT(std::fabs(m[size_t(r)] - top) <= error);
    double total = 0;
    for (double s : score) total += std::exp(s - top);
    EXPECT(std::fabs(l[size_t(r)] * std::exp(m[size_t(r)] - top) / total - 1) <= 2 * error + 1e-6);
    for (int64_t c = 0; c < d; ++c) {
      double sum = 0, terms = 0;
      for (size_t j = 0; j < at.size(); ++j) {
        const uint8_t* block = blocks[size_t(at[j] / 32 - kFirstBlock)].data();
        const double term = std::exp(score[j] - top) / total * element(keys, block, 32 * d + at[j] % 32 * d + c) * scale(block, int(32 + at[j] % 32));
        sum += term;
        terms += std::fabs(term);
      }
      if (std::fabs(o[size_t(r * d + c)] / l[size_t(r)] - sum) <= terms * (2 * error + 0x1.1p-8)) continue;
      expect(false, __FILE__, __LINE__, "attention of row " + shown(r) + " near its sum, " + shown(keys.bytes) + " bytes, d " + shown(d));
      return;
    }
  }
  for (int64_t first : {1, 5, 21}) {  // the same whatever rows stand beside
    const int64_t rows = std::min<int64_t>(kQueries - first, 18);
    std::vector<float> m2(size_t(rows), 0.0f), l2(size_t(rows), 0.0f), o2(size_t(rows * d), -7.0f);
    run(first, rows, m2.data(), l2.data(), o2.data());
    EXPECT(std::equal(m2.begin(), m2.end(), &m[size_t(first)]) && std::equal(l2.begin(), l2.end(), &l[size_t(first)]));
    EXPECT(std::memcmp(o2.data(), &o[size_t(first * d)], o2.size() * 4) == 0);
  }
}

}  // namespace

int main() {
  const pyrt_kernels* t = pyrt_kernel_table("amx");
  if (!t) {
    std::printf("test_tiles: skipped, this machine has no tiles\n");
    return 0;
  }
  const Case cases[] = {{"Q4_0", t->tiles_w4s, {0}},    {"Q4_1", t->tiles_w4a, {0, 2}}, {"Q5_0", t->tiles_w5s, {0}},
                        {"Q5_1", t->tiles_w5a, {0, 2}}, {"Q8_0", t->tiles_w8, {0}},     {"Q4_K", t->tiles_w4k, {0, 2}},
                        {"Q5_K", t->tiles_w5k, {0, 2}}, {"Q6_K", t->tiles_w6k, {208}},  {"BF16", t->tiles_bf16, {}}};
  for (const Case& c : cases)
    for (int64_t cols : {256, 768, 2048}) check(*t, c, cols);
  for (int64_t cols : {32, 96, 608, 672}) check(*t, cases[0], cols);
  for (int64_t cols : {1, 63, 650}) check(*t, cases[8], cols);
  for (int64_t d : {16, 64, 80, 256, 272})  // the last goes the other way
    for (const Keys& keys : {Keys{2, t->attn_tiles_f16}, Keys{4, t->attn_tiles_f32}, Keys{1, t->attn_tiles_int8}}) check_attention(keys, d);
  return finish("test_tiles");
}
