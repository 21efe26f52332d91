// Stored types, packed layouts, and the way from one to the other: decode a block, repack once, at load.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "packed/layout.h"

namespace pyrt {

enum class LayoutId {
#define LAYOUT(name, ...) name,
#include "packed/layouts.def"
#undef LAYOUT
  F32,
  F16,
  BF16,
  kCount,
};

// One stored type: a row of formats.def with the functions that its header gives.
struct Format {
  std::string_view name;
  int64_t block;        // weights a block
  int64_t block_bytes;  // bytes a block
  LayoutId layout;
  bool is_float;
  // Decodes one row of `cols` weights.
  void (*decode)(const uint8_t* row, int64_t cols, float* out);
  // Packs up to 16 rows (null: a row of zeros) of `cols` weights into one panel; the panel is zeroed memory.
  // False: a scale is infinite or not a number.
  bool (*pack_panel)(const uint8_t* const rows[kPanel], int64_t cols, uint8_t* panel);

  int64_t row_bytes(int64_t cols) const { return cols / block * block_bytes; }
};
const Format* find_format(std::string_view name);  // null: not a row of formats.def

// One packed layout: a row of layouts.def, or a float panel.
struct LayoutInfo {
  std::string_view name;
  bool is_float;
  int64_t (*panel_bytes)(int64_t cols);
  // Decodes row `lane` of a panel, with the arithmetic of the stored type: bit for bit what `Format::decode` gives.
  void (*decode_row)(const uint8_t* panel, int lane, int64_t cols, float* out);
};
const LayoutInfo& layout_info(LayoutId id);

// A weight matrix [rows, cols] in panels; the model's arena owns the memory.
struct PackedMatrix {
  LayoutId layout = LayoutId::F32;
  int64_t rows = 0, cols = 0, panel_bytes = 0;
  const uint8_t* data = nullptr;

  int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
  int64_t bytes() const { return panels() * panel_bytes; }
  void decode_row(int64_t row, float* out) const;
};

// Encodes one row of floats as a stored type: F32, F16, BF16; Q8_0, Q4_0 in groups of 32. Error for other types, and for
// values beyond f16: nothing is cut off in silence.
void encode_row(const Format& to, const float* x, int64_t cols, uint8_t* out);

}  // namespace pyrt
