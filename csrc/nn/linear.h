// Matrix products with packed weights: several matrices over the same activations in one parallel region.
//   out[r][n] = sum over k of w[n][k] * x[r][k]
#pragma once

#include <span>
#include <vector>

#include "base/arena.h"
#include "nn/context.h"
#include "packed/packed.h"

namespace pyrt {

// Activations of a batch: floats as the blocks write them, and what matrices want of them: int8 codes or bf16 tiles.
class Activations {
 public:
  static constexpr int64_t kRowTile = 64;  // codes of so many rows stand together, group by group, and stay in L2

  void reserve(int64_t rows, int64_t cols);  // keeps nothing; room for rows x round_up(cols, 16)
  void reserve_tiles();                      // room for tiles of as many rows
  float* row(int64_t r) { return floats_.as<float>() + r * ld_; }
  int64_t ld() const { return ld_; }  // floats from row to row
  // Codes of row r of `rows`: pointers into the same memory, for kernels that write or read from row r on, within its tile.
  pyrt_acts codes(int64_t r, int64_t rows, int64_t cols) const;
  const float* floats() const { return floats_.as<float>(); }
  uint16_t* tiles() const { return tiles_.as<uint16_t>(); }

 private:
  int64_t capacity_ = 0, ld_ = 0;
  Buffer floats_, codes_, tiles_;
};

struct Product {
  const PackedMatrix* w;
  float* out;      // [rows][ldo], room for a multiple of 16 columns
  int64_t ldo;
};

// Whether any of the matrices wants more than floats.
bool wants_preparing(const Context& ctx, std::span<const Product> products);
// Prepares rows [first, last) of x's `rows`, cols values each, for the products: tiles of the step's first rows, codes of the
// others. False: a value is not finite.
bool prepare_rows(const Context& ctx, std::span<const Product> products, Activations& x, int64_t cols, int64_t rows, int64_t first,
                  int64_t last);
// All products of rows [0, rows) of x, which must be prepared.
void multiply(const Context& ctx, Activations& x, int64_t rows, std::span<const Product> products);

}  // namespace pyrt
