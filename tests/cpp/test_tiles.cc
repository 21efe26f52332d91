// The bf16 tile kernels of "fast" prompts against sums in double, on machines that have tiles; elsewhere it says so.
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
  return finish("test_tiles");
}
