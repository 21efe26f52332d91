#include "nn/linear.h"

#include <algorithm>
#include <iterator>

namespace pyrt {
namespace {

// The kernels of each layout: one of the first two is set.
struct Gemm {
  pyrt_gemm_quant pyrt_kernels::* quant;
  pyrt_gemm_float pyrt_kernels::* floating;
  pyrt_gemm_tiles pyrt_kernels::* tiles;
};
constexpr Gemm kGemms[] = {
    {&pyrt_kernels::gemm_w4s, nullptr, &pyrt_kernels::tiles_w4s}, {&pyrt_kernels::gemm_w4a, nullptr, &pyrt_kernels::tiles_w4a},
    {&pyrt_kernels::gemm_w5s, nullptr, &pyrt_kernels::tiles_w5s}, {&pyrt_kernels::gemm_w5a, nullptr, &pyrt_kernels::tiles_w5a},
    {&pyrt_kernels::gemm_w8, nullptr, &pyrt_kernels::tiles_w8},   {&pyrt_kernels::gemm_w4k, nullptr, &pyrt_kernels::tiles_w4k},
    {&pyrt_kernels::gemm_w5k, nullptr, &pyrt_kernels::tiles_w5k}, {&pyrt_kernels::gemm_w6k, nullptr, &pyrt_kernels::tiles_w6k},
    {nullptr, &pyrt_kernels::gemm_f32, nullptr},                  {nullptr, &pyrt_kernels::gemm_f16, nullptr},
    {nullptr, &pyrt_kernels::gemm_bf16, &pyrt_kernels::tiles_bf16},
};
static_assert(std::size(kGemms) == size_t(LayoutId::kCount));

const Gemm& gemm_of(const Product& p) { return kGemms[int(p.w->layout)]; }
bool wants_codes(const Product& p) { return gemm_of(p).quant != nullptr; }
bool wants_tiles(const Product& p) { return gemm_of(p).tiles != nullptr; }
// The first of its rows that do not multiply by tiles.
int64_t tiled_rows(const Context& ctx, const Product& p, int64_t rows) { return wants_tiles(p) ? std::min(ctx.tiled, rows) : 0; }

constexpr int64_t kTasksPerThread = 4;   // enough for a slow core to be helped, few enough to be free
constexpr int64_t kChunkBytes = 256 << 10;  // weights a task: they stay in L2 while all row tiles pass

// Panels [first, last) of one product for rows [row, end) of `all`, which lie within a tile of x.
void multiply_rows(const Context& ctx, const Activations& x, const Product& p, int64_t first, int64_t last, int64_t row, int64_t end,
                   int64_t all) {
  const Gemm& gemm = gemm_of(p);
  const uint8_t* w = p.w->data + first * p.w->panel_bytes;
  float* out = p.out + row * p.ldo + first * kPanel;
  if (gemm.quant) {
    const pyrt_acts codes = x.codes(row, all, p.w->cols);
    (ctx.kernels.*gemm.quant)(w, p.w->panel_bytes, last - first, ctx.stream_ahead, &codes, end - row, out, p.ldo);
  } else {
    (ctx.kernels.*gemm.floating)(w, p.w->panel_bytes, last - first, ctx.stream_ahead, x.floats() + row * x.ld(), p.w->cols, x.ld(), end - row,
                                 out, p.ldo);
  }
}

// The same for the rows of a tile of x that starts at `row`. What multiplies by tiles does so for all rows with the first.
void multiply_tile(const Context& ctx, const Activations& x, const Product& p, int64_t first, int64_t last, int64_t row, int64_t all) {
  const int64_t tiled = tiled_rows(ctx, p, all), begin = std::max(row, tiled), end = std::min(row + Activations::kRowTile, all);
  if (tiled > 0 && row == 0)
    (ctx.kernels.*gemm_of(p).tiles)(p.w->data + first * p.w->panel_bytes, p.w->panel_bytes, last - first, x.tiles(), p.w->cols, tiled,
                                    p.out + first * kPanel, p.ldo);
  if (begin < end) multiply_rows(ctx, x, p, first, last, begin, end, all);
}

}  // namespace

void Activations::reserve(int64_t rows, int64_t cols) {
  const int64_t ld = round_up(cols, 256);
  if (rows <= capacity_ && ld <= ld_) return;
  ld_ = std::max(ld, ld_);
  capacity_ = std::max(rows, capacity_);
  floats_ = Buffer(size_t(capacity_ * ld_) * 4);
  codes_ = Buffer(size_t(capacity_ * ld_) * 2);  // 1 byte of code, 16 bytes of scales and sums per 32, 4 per 16
}

void Activations::reserve_tiles() {
  const size_t bytes = size_t(round_up(capacity_, 16) * ld_) * 2;
  if (bytes > tiles_.size()) tiles_ = Buffer(bytes);
}

pyrt_acts Activations::codes(int64_t r, int64_t rows, int64_t cols) const {
  const int64_t k = round_up(cols, 64), room = capacity_ * ld_;
  uint8_t* base = codes_.data();
  float* scale = reinterpret_cast<float*>(base + room);
  float* sum = scale + room / 32;
  int32_t* sum32 = reinterpret_cast<int32_t*>(sum + room / 32);
  int32_t* sum16 = sum32 + room / 32;
  const int64_t tile = r / kRowTile * kRowTile, at = tile * k / 32 + (r - tile);
  return {k, std::min(kRowTile, rows - tile), reinterpret_cast<int8_t*>(base) + at * 32,
          scale + at, sum + at, sum32 + at, sum16 + at + tile * k / 32};
}

bool wants_preparing(const Context& ctx, std::span<const Product> products) {
  return std::any_of(products.begin(), products.end(),
                     [&](const Product& p) { return wants_codes(p) || (ctx.tiled > 0 && wants_tiles(p)); });
}

bool prepare_rows(const Context& ctx, std::span<const Product> products, Activations& x, int64_t cols, int64_t rows, int64_t first,
                  int64_t last) {
  bool finite = true;
  const int64_t tiled = std::min(ctx.tiled, last);
  if (first < tiled && std::any_of(products.begin(), products.end(), wants_tiles))
    finite &= ctx.kernels.to_tiles(x.row(first), cols, x.ld(), first, tiled - first, x.tiles()) == 0;
  if (!std::any_of(products.begin(), products.end(), wants_codes)) return finite;
  for (int64_t next, row = std::max(first, tiled); row < last; row = next) {
    next = std::min(last, (row / Activations::kRowTile + 1) * Activations::kRowTile);
    const pyrt_acts codes = x.codes(row, rows, cols);
    finite &= ctx.kernels.quantize(x.row(row), cols, x.ld(), next - row, &codes) == 0;
  }
  return finite;
}

void multiply(const Context& ctx, Activations& x, int64_t rows, std::span<const Product> products) {
  if (rows == 0) return;
  int64_t panels = 0;
  for (const Product& p : products) panels += p.w->panels();
  const int64_t row_tiles = (rows + Activations::kRowTile - 1) / Activations::kRowTile;
  const int64_t tiled = tiled_rows(ctx, products[0], rows);  // all these at once, with the first tile of rows
  const int64_t passes = (tiled > 0) + row_tiles - tiled / Activations::kRowTile;
  const int64_t wanted = std::max<int64_t>(1, ctx.pool.size() * kTasksPerThread / std::max<int64_t>(1, passes));
  int64_t chunk = ctx.pool.size() == 1 ? panels : (panels + wanted - 1) / wanted;
  if (passes > 1) chunk = std::min(chunk, kChunkBytes / products[0].w->panel_bytes);
  if (tiled > 0) chunk = round_up(chunk, 2);  // tiles take panels in pairs
  chunk = std::max<int64_t>(1, chunk);
  const int64_t chunks = (panels + chunk - 1) / chunk;

  ctx.pool.run(int(chunks * row_tiles), [&](int task, int) {
    const int64_t row = task % row_tiles * Activations::kRowTile;
    int64_t first = task / row_tiles * chunk, last = std::min(first + chunk, panels);
    for (const Product& p : products) {  // the chunk may reach over several matrices
      const int64_t here = p.w->panels();
      if (first < here && first < last) multiply_tile(ctx, x, p, first, std::min(last, here), row, rows);
      first = std::max<int64_t>(0, first - here);
      last -= here;
      if (last <= 0) break;
    }
  });
}

}  // namespace pyrt
