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

constexpr int64_t kBlocks = 9, kQueries = 37;
constexpr int64_t kFirst = 64;  // the first key's position: the call begins amid a step

// Random blocks as the cache stores them, and what they mean.
struct Stored {
  int bytes;
  int64_t d;
  std::vector<std::vector<uint8_t>> blocks;

  Stored(int element_bytes, int64_t head_dim) : bytes(element_bytes), d(head_dim), blocks(kBlocks, std::vector<uint8_t>(size_t(64 * d * bytes + 256))) {
    for (std::vector<uint8_t>& block : blocks) {
      for (int64_t i = 0; i < 64 * d; ++i) {
        const float x = next_float(1);
        const uint16_t half = f32_to_f16(x);
        if (bytes == 4) std::memcpy(&block[size_t(4 * i)], &x, 4);
        if (bytes == 2) std::memcpy(&block[size_t(2 * i)], &half, 2);
        if (bytes == 1) block[size_t(i)] = uint8_t(int8_t(127 * x));
      }
      for (int64_t i = 0; i < 64; ++i) {
        const float x = (1 + next_float(0.3f)) / 127;
        std::memcpy(&block[size_t(64 * d * bytes + 4 * i)], &x, 4);
      }
    }
  }

  double k(int64_t key, int64_t i) const { return at(key, i * 32 + key % 32, key % 32); }
  double v(int64_t key, int64_t c) const { return at(key, 32 * d + key % 32 * d + c, 32 + key % 32); }

 private:
  double at(int64_t key, int64_t index, int64_t scale) const {
    const uint8_t* block = blocks[size_t((key - kFirst) / 32)].data();
    float x;
    if (bytes == 1) {
      std::memcpy(&x, block + 64 * d + 4 * scale, 4);
      return double(x) * int8_t(block[index]);
    }
    uint16_t half;
    std::memcpy(&half, block + 2 * index, 2);
    if (bytes == 2) return f16_to_f32(half);
    std::memcpy(&x, block + 4 * index, 4);
    return x;
  }
};

struct Answer {
  std::vector<float> m, l, o;
};

// A row that sees keys [begin, end) against sums in double. Queries, keys, weights and values are each off by up to 2^-9 of themselves.
bool near_sums(const Stored& stored, const float* q, int64_t begin, int64_t end, float m, float l, const float* o) {
  std::vector<double> score;
  double size = 0, total = 0;
  for (int64_t key = begin; key < end; ++key) {
    double sum = 0, terms = 0;
    for (int64_t i = 0; i < stored.d; ++i) {
      sum += q[i] * stored.k(key, i);
      terms += std::fabs(q[i] * stored.k(key, i));
    }
    score.push_back(sum);
    size = std::max(size, terms);
  }
  const double top = *std::max_element(score.begin(), score.end()), error = 0x1.1p-8 * size;
  for (double s : score) total += std::exp(s - top);
  bool good = std::fabs(m - top) <= error && std::fabs(l * std::exp(m - top) / total - 1) <= 2 * error + 1e-6;
  for (int64_t c = 0; c < stored.d; ++c) {
    double sum = 0, terms = 0;
    for (int64_t key = begin; key < end; ++key) {
      const double term = std::exp(score[size_t(key - begin)] - top) / total * stored.v(key, c);
      sum += term;
      terms += std::fabs(term);
    }
    good &= std::fabs(o[c] / l - sum) <= terms * (2 * error + 0x1.1p-8);
  }
  return good;
}

void check_attention(const Keys& keys, int64_t d) {
  const Stored stored(keys.bytes, d);
  const void* blocks[kBlocks];
  for (int64_t b = 0; b < kBlocks; ++b) blocks[b] = stored.blocks[size_t(b)].data();
  std::vector<float> q(size_t(kQueries * d));
  for (float& x : q) x = next_float(3.0f / float(d));
  int64_t begin[kQueries], end[kQueries];
  for (int64_t r = 0; r < kQueries; ++r) {
    begin[r] = r < 20 ? 0 : kFirst + 4 * r;
    end[r] = kFirst + (r < 2 ? 0 : 1 + 7 * r);  // the first two see nothing
  }
  const auto run = [&](int64_t first, int64_t rows) {
    Answer a{std::vector<float>(size_t(rows), 7.0f), std::vector<float>(size_t(rows), 7.0f), std::vector<float>(size_t(rows * d), 7.0f)};
    const pyrt_attn call = {rows,       d,      &q[size_t(first * d)], begin + first, end + first, kFirst / 32, kFirst / 32 + kBlocks, blocks,
                            a.m.data(), a.l.data(), a.o.data()};
    keys.kernel(&call);
    return a;
  };
  const Answer all = run(0, kQueries);
  for (int64_t r = 0; r < kQueries; ++r) {
    const float m = all.m[size_t(r)], l = all.l[size_t(r)], *o = &all.o[size_t(r * d)];
    if (end[r] == kFirst)
      EXPECT(m == -INFINITY && l == 0 && std::count(o, o + d, 0.0f) == d);
    else if (!near_sums(stored, &q[size_t(r * d)], std::max(begin[r], kFirst), end[r], m, l, o))
      return expect(false, __FILE__, __LINE__, "attention of row " + shown(r) + " near its sums, " + shown(keys.bytes) + " bytes, d " + shown(d));
  }
  for (int64_t first : {1, 5, 21}) {  // the same whatever rows stand beside
    const int64_t rows = std::min<int64_t>(kQueries - first, 18);
    const Answer some = run(first, rows);
    EXPECT(std::equal(some.m.begin(), some.m.end(), &all.m[size_t(first)]));
    EXPECT(std::equal(some.l.begin(), some.l.end(), &all.l[size_t(first)]));
    EXPECT(std::memcmp(some.o.data(), &all.o[size_t(first * d)], some.o.size() * sizeof(float)) == 0);
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
