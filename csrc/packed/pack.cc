#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "formats/bf16.h"
#include "formats/f16.h"
#include "formats/f32.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"
#include "packed/packed.h"

namespace pyrt {
namespace {

uint32_t load32(const uint8_t* p) {
  uint32_t x;
  std::memcpy(&x, p, 4);
  return x;
}
uint64_t load64(const uint8_t* p) {
  uint64_t x;
  std::memcpy(&x, p, 8);
  return x;
}
void store32(uint8_t* p, uint32_t x) { std::memcpy(p, &x, 4); }
void store16(uint8_t* p, uint16_t x) { std::memcpy(p, &x, 2); }
bool finite_f16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

// Weight i of a block; the order of operations is that of the types' public definition.
template <class L>
float value(const Codes& c, int i) {
  const int g = i / L::kGroup;
  float scale = f16_to_f32(c.d);
  if constexpr (L::kTwoLevel) scale *= float(c.sub[g]);
  float w = scale * float(int(c.q[i]) - L::kZero);
  if constexpr (L::kMinima && L::kTwoLevel) w -= f16_to_f32(c.m) * float(c.sub_m[g]);
  if constexpr (L::kMinima && !L::kTwoLevel) w += f16_to_f32(c.m);
  return w;
}

// Lane `lane` of a group of weights, from its codes.
template <class L>
void put_group(const uint8_t* q, int lane, uint8_t* group) {
  uint8_t* at = group + lane * 4;
  if constexpr (L::kBits == 8) {
    for (int r = 0; r < L::kQuads; ++r) store32(at + r * 64, load32(q + 4 * r));
    return;
  }
  uint32_t upper = 0;  // bits above the fourth, of quad r moved left by r times their number
  for (int j = 0; j < L::kQuads / 2; ++j) {
    const uint64_t pair = load64(q + 8 * j), low = pair & 0x0f0f0f0f0f0f0f0fu;  // quads 2j and 2j + 1
    store32(at + j * 64, uint32_t(low | low >> 28));
    constexpr int kUpper = L::kBits - 4;
    const uint64_t high = pair >> 4 & (kUpper == 2 ? 0x0303030303030303u : 0x0101010101010101u);
    upper |= uint32_t(high | high >> (32 - kUpper)) << (2 * kUpper * j);
  }
  if constexpr (L::kBits != 4) store32(at + L::kPlane, upper);
}

template <class L>
void get_group(const uint8_t* group, int lane, uint8_t* q) {
  const uint8_t* at = group + lane * 4;
  for (int r = 0; r < L::kQuads; ++r) {
    if constexpr (L::kBits == 8) {
      store32(q + 4 * r, load32(at + r * 64));
      continue;
    }
    uint32_t codes = (load32(at + r / 2 * 64) >> (r % 2 * 4)) & 0x0f0f0f0fu;
    if constexpr (L::kBits == 5) codes |= ((load32(at + L::kPlane) >> r) & 0x01010101u) << 4;
    if constexpr (L::kBits == 6) codes |= ((load32(at + L::kPlane) >> (2 * r)) & 0x03030303u) << 4;
    store32(q + 4 * r, codes);
  }
}

// Puts a decoded block into lane `lane` of its record; `first` is the block's first group there.
template <class L>
void put_block(const Codes& c, int groups, int first, int lane, uint8_t* record) {
  for (int g = 0; g < groups; ++g)
    put_group<L>(c.q + g * L::kGroup, lane, record + L::kHeader + (first + g) * L::kGroupBytes);
  if constexpr (L::kTwoLevel) {
    store16(record + lane * 2, c.d);
    if constexpr (L::kMinima) store16(record + 32 + lane * 2, c.m);
    for (int g = 0; g < groups; ++g) {
      record[L::kSubOffset + g * kPanel + lane] = uint8_t(c.sub[g]);
      if constexpr (L::kMinima) record[L::kSubMinOffset + g * kPanel + lane] = c.sub_m[g];
    }
  } else {
    store16(record + (first * kPanel + lane) * 2, c.d);
    if constexpr (L::kMinima) store16(record + L::kMinOffset + (first * kPanel + lane) * 2, c.m);
  }
}

template <class L>
void get_block(const uint8_t* record, int groups, int first, int lane, Codes& c) {
  for (int g = 0; g < groups; ++g)
    get_group<L>(record + L::kHeader + (first + g) * L::kGroupBytes, lane, c.q + g * L::kGroup);
  if constexpr (L::kTwoLevel) {
    std::memcpy(&c.d, record + lane * 2, 2);
    std::memcpy(&c.m, record + 32 + lane * 2, 2);
    for (int g = 0; g < groups; ++g) {
      c.sub[g] = int8_t(record[L::kSubOffset + g * kPanel + lane]);
      if constexpr (L::kMinima) c.sub_m[g] = record[L::kSubMinOffset + g * kPanel + lane];
    }
  } else {
    std::memcpy(&c.d, record + (first * kPanel + lane) * 2, 2);
    if constexpr (L::kMinima) std::memcpy(&c.m, record + L::kMinOffset + (first * kPanel + lane) * 2, 2);
  }
}

// The functions of a quantized type F of `block` weights, packed as L.
template <class F, class L, int kBlock>
struct Quantized {
  using Block = typename F::Block;
  static constexpr int kGroupsPerBlock = kBlock / L::kGroup;

  static void decode(const uint8_t* row, int64_t cols, float* out) {
    Codes c{};
    for (int64_t k = 0; k < cols; k += kBlock) {
      Block block;
      std::memcpy(&block, row + k / kBlock * int64_t(sizeof block), sizeof block);
      F::unpack(block, c);
      for (int i = 0; i < kBlock; ++i) out[k + i] = value<L>(c, i);
    }
  }
  static bool pack_panel(const uint8_t* const rows[kPanel], int64_t cols, uint8_t* panel) {
    bool finite = true;
    for (int lane = 0; lane < kPanel; ++lane) {
      if (!rows[lane]) continue;
      Codes c{};
      for (int64_t k = 0; k < cols; k += kBlock) {
        Block block;
        std::memcpy(&block, rows[lane] + k / kBlock * int64_t(sizeof(Block)), sizeof block);
        F::unpack(block, c);
        finite &= finite_f16(c.d) && finite_f16(c.m);
        put_block<L>(c, kGroupsPerBlock, int(k % L::kRecordK) / L::kGroup, lane, panel + k / L::kRecordK * L::kRecord);
      }
    }
    return finite;
  }
};

template <class F>
struct Floating {
  using Block = typename F::Block;
  static void decode(const uint8_t* row, int64_t cols, float* out) {
    for (int64_t k = 0; k < cols; ++k) {
      Block b;
      std::memcpy(&b, row + k * int64_t(sizeof b), sizeof b);
      out[k] = b.x.value();
    }
  }
  static bool pack_panel(const uint8_t* const rows[kPanel], int64_t cols, uint8_t* panel) {
    bool finite = true;
    for (int lane = 0; lane < kPanel; ++lane) {
      if (!rows[lane]) continue;
      for (int64_t k = 0; k < cols; ++k) {
        Block b;
        std::memcpy(&b, rows[lane] + k * int64_t(sizeof b), sizeof b);
        const float x = b.x.value();
        finite &= x - x == 0;
        std::memcpy(panel + (k * kPanel + lane) * int64_t(sizeof b), &b, sizeof b);
      }
    }
    return finite;
  }
  static int64_t panel_bytes(int64_t cols) { return (cols * kPanel * int64_t(sizeof(Block)) + 63) / 64 * 64; }
  static void decode_row(const uint8_t* panel, int lane, int64_t cols, float* out) {
    for (int64_t k = 0; k < cols; ++k) decode(panel + (k * kPanel + lane) * int64_t(sizeof(Block)), 1, out + k);
  }
};

template <class L>
struct Packed {
  static int64_t panel_bytes(int64_t cols) { return (cols + L::kRecordK - 1) / L::kRecordK * L::kRecord; }
  static void decode_row(const uint8_t* panel, int lane, int64_t cols, float* out) {
    constexpr int kStep = L::kTwoLevel ? 256 : 32;
    Codes c{};
    for (int64_t k = 0; k < cols; k += kStep) {
      get_block<L>(panel + k / L::kRecordK * L::kRecord, kStep / L::kGroup, int(k % L::kRecordK) / L::kGroup, lane, c);
      for (int i = 0; i < kStep && k + i < cols; ++i) out[k + i] = value<L>(c, i);
    }
  }
};

namespace layouts_with_floats {
using namespace layouts;
using F32 = Floating<formats::F32>;
using F16 = Floating<formats::F16>;
using BF16 = Floating<formats::BF16>;
}  // namespace layouts_with_floats

template <class F, class L, int kBlock>
using Ways = std::conditional_t<F::kFloat, Floating<F>, Quantized<F, L, kBlock>>;

const Format kFormats[] = {
#define FORMAT(name, block, layout)                                                                                \
  {#name, block, sizeof(formats::name::Block), LayoutId::layout, formats::name::kFloat,                            \
   Ways<formats::name, layouts_with_floats::layout, block>::decode,                                                \
   Ways<formats::name, layouts_with_floats::layout, block>::pack_panel},
#include "formats/formats.def"
#undef FORMAT
};

const LayoutInfo kLayouts[] = {
#define LAYOUT(name, ...) {#name, false, Packed<layouts::name>::panel_bytes, Packed<layouts::name>::decode_row},
#include "packed/layouts.def"
#undef LAYOUT
    {"F32", true, Floating<formats::F32>::panel_bytes, Floating<formats::F32>::decode_row},
    {"F16", true, Floating<formats::F16>::panel_bytes, Floating<formats::F16>::decode_row},
    {"BF16", true, Floating<formats::BF16>::panel_bytes, Floating<formats::BF16>::decode_row},
};

}  // namespace

const Format* find_format(std::string_view name) {
  const Format* end = std::end(kFormats);
  const Format* found = std::find_if(std::begin(kFormats), end, [&](const Format& f) { return f.name == name; });
  return found == end ? nullptr : found;
}

const LayoutInfo& layout_info(LayoutId id) { return kLayouts[int(id)]; }

void PackedMatrix::decode_row(int64_t row, float* out) const {
  PYRT_CHECK(row >= 0 && row < rows, "row ", row, " of a matrix of ", rows, " rows");
  layout_info(layout).decode_row(data + row / kPanel * panel_bytes, int(row % kPanel), cols, out);
}

}  // namespace pyrt
