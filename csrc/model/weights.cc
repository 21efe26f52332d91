#include "model/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace pyrt {
namespace {

using Slots = std::map<std::string, Slot>;

void add_vector(Slots& slots, const std::string& name, Vector& v, int64_t n, bool required = true, bool rotated = false) {
  slots[name] = {nullptr, &v, 1, n, required, rotated, false};
}

void add_norm(Slots& slots, const std::string& name, NormWeights& norm, int64_t n) {
  add_vector(slots, name, norm.w, n);
  add_vector(slots, name + ".bias", norm.bias, n, false);
}

void add_linear(Slots& slots, const std::string& name, Linear& linear, int64_t out, int64_t in, bool rotated = false) {
  slots[name] = {&linear.w, nullptr, out, in, true, rotated, false};
  add_vector(slots, name + ".bias", linear.bias, out, false, rotated);
}

void add_layer(Slots& slots, const std::string& at, Layer& layer, const Config& c) {
  const bool rotated = c.rope_layout == RopeLayout::pairs;
  add_norm(slots, at + "attn_norm", layer.attn_norm, c.d_model);
  add_norm(slots, at + "mlp_norm", layer.mlp_norm, c.d_model);
  if (c.post_norms) {
    add_norm(slots, at + "attn_post_norm", layer.attn_post_norm, c.d_model);
    add_norm(slots, at + "mlp_post_norm", layer.mlp_post_norm, c.d_model);
  }
  if (c.qk_norm) {
    add_vector(slots, at + "q_norm", layer.q_norm, c.head_dim, true, rotated);
    add_vector(slots, at + "k_norm", layer.k_norm, c.head_dim, true, rotated);
  }
  add_linear(slots, at + "q", layer.q, c.q_dim(), c.d_model, rotated);
  add_linear(slots, at + "k", layer.k, c.kv_dim(), c.d_model, rotated);
  add_linear(slots, at + "v", layer.v, c.kv_dim(), c.d_model);
  add_linear(slots, at + "o", layer.o, c.d_model, c.q_dim());
  if (c.gated_mlp) add_linear(slots, at + "gate", layer.gate, c.d_ff, c.d_model);
  add_linear(slots, at + "up", layer.up, c.d_ff, c.d_model);
  add_linear(slots, at + "down", layer.down, c.d_model, c.d_ff);
}

// Row `packed` of a reordered head holds this row of the stored one: first the even members of the pairs, then the odd.
int64_t stored_row(const Config& c, int64_t packed) {
  const int64_t head = packed / c.head_dim, i = packed % c.head_dim, half = c.rope_dim / 2;
  if (i >= c.rope_dim) return packed;
  return head * c.head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

void decode_vector(const Config& c, const Format& format, const Slot& slot, const uint8_t* data, Vector& out) {
  Vector stored(size_t(slot.cols));
  format.decode(data, slot.cols, stored.data());
  out.resize(stored.size());
  for (int64_t i = 0; i < slot.cols; ++i) {
    out[size_t(i)] = stored[size_t(slot.rotated ? stored_row(c, i) : i)];
    PYRT_CHECK(std::isfinite(out[size_t(i)]), "it holds a value that is not finite");
  }
}

constexpr int64_t kSlice = int64_t(2) << 20;  // bytes packed between two looks at the world

// Lets go of the pages of a mapped file around some bytes of it. Whoever reads them again finds them in the system's cache.
void drop_pages(const uint8_t* data, int64_t bytes) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(data) / page * page;
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(data) + uintptr_t(bytes) - first, MADV_DONTNEED);
}

}  // namespace

std::map<std::string, Slot> ModelBuilder::slots_of(Model& m) {
  const Config& c = m.config;
  Slots slots;
  slots["embed"] = {&m.embed, nullptr, c.n_vocab, c.d_model, true, false, false};
  if (c.n_positions) slots["pos_embed"] = {&m.pos_embed, nullptr, c.n_positions, c.d_model, true, false, false};
  for (size_t s = 0; s < m.ropes.size(); ++s) add_vector(slots, text("rope.", s), m.ropes[s], c.rope_dim / 2);
  for (size_t i = 0; i < m.layers.size(); ++i) add_layer(slots, text("layers.", i, "."), m.layers[i], c);
  add_norm(slots, "final_norm", m.final_norm, c.d_model);
  add_linear(slots, "head", m.head, c.n_vocab, c.d_model);
  slots["head"].required = false;
  return slots;
}

int64_t ModelBuilder::packed_row(const Config& c, const Slot& slot, int64_t row) {
  const int64_t head = row / c.head_dim, i = row % c.head_dim;
  if (!slot.rotated || i >= c.rope_dim) return row;
  return head * c.head_dim + (i % 2 ? c.rope_dim / 2 : 0) + i / 2;
}

ModelBuilder::ModelBuilder(const Config& config, int threads) : model_(std::make_shared<Model>()), threads_(threads) {
  config.check();
  model_->config = config;
  model_->layers.resize(size_t(config.n_layers));
  model_->ropes.resize(size_t(config.n_rope_sets()));
  slots_ = slots_of(*model_);
}

ThreadPool& ModelBuilder::pool() {
  const int threads = threads_;
  if (!pool_ || pool_->size() != threads) pool_ = std::make_unique<ThreadPool>(threads);
  return *pool_;
}

void ModelBuilder::add(const std::string& name, std::string_view format, int64_t rows, int64_t cols,
                       std::span<const uint8_t> data, std::string_view store, bool mapped) {
  PYRT_CHECK(model_, "tensor ", name, ": the model is built already");
  const auto found = slots_.find(name);
  PYRT_CHECK(found != slots_.end(), "tensor ", name, " has no place in this model");
  Slot& slot = found->second;
  PYRT_CHECK(!slot.filled, "tensor ", name, " comes twice");
  PYRT_CHECK(rows == slot.rows && cols == slot.cols, "tensor ", name, " is [", rows, ", ", cols, "], but the model needs [",
             slot.rows, ", ", slot.cols, "]");
  const Format* from = find_format(format);
  PYRT_CHECK(from, "tensor ", name, " has type ", format, ", which is unknown");
  const Format* to = store.empty() ? from : find_format(store);
  PYRT_CHECK(to, "tensor ", name, " cannot be stored as ", store, ", which is unknown");
  for (const Format* f : {from, to})
    PYRT_CHECK(cols % f->block == 0, "tensor ", name, " has ", cols, " columns, no multiple of the ", f->block, " of a ", f->name,
               " block");
  PYRT_CHECK(int64_t(data.size()) / rows == from->row_bytes(cols) && int64_t(data.size()) % rows == 0, "tensor ", name, " has ",
             data.size(), " bytes of data, but needs ", rows, " x ", from->row_bytes(cols));
  try {
    if (slot.vector)
      decode_vector(model_->config, *from, slot, data.data(), *slot.vector);
    else
      pack(*from, *to, slot, data, mapped);
  } catch (const Error& e) {
    throw Error(text("tensor ", name, ": ", e.what()));
  }
  slot.filled = true;
}

void ModelBuilder::pack(const Format& from, const Format& to, const Slot& slot, std::span<const uint8_t> data, bool mapped) {
  PackedMatrix& matrix = *slot.matrix;
  const int64_t cols = slot.cols, row_bytes = from.row_bytes(cols), panel_bytes = layout_info(to.layout).panel_bytes(cols);
  uint8_t* packed = model_->arena.allocate(size_t((slot.rows + kPanel - 1) / kPanel * panel_bytes));
  std::atomic<bool> finite{true};
  const auto pack_panel = [&](int64_t panel) {
    const bool convert = &from != &to;
    Vector floats(convert ? size_t(cols) : 0);
    std::vector<uint8_t> converted(convert ? size_t(kPanel * to.row_bytes(cols)) : 0);
    const uint8_t* rows[kPanel] = {};
    for (int lane = 0; lane < kPanel && panel * kPanel + lane < slot.rows; ++lane) {
      const int64_t row = panel * kPanel + lane;
      rows[lane] = data.data() + (slot.rotated ? stored_row(model_->config, row) : row) * row_bytes;
      if (!convert) continue;
      from.decode(rows[lane], cols, floats.data());
      uint8_t* encoded = converted.data() + lane * to.row_bytes(cols);
      encode_row(to, floats.data(), cols, encoded);
      rows[lane] = encoded;
    }
    if (!to.pack_panel(rows, cols, packed + panel * panel_bytes)) finite = false;
  };
  const int64_t slice = std::max<int64_t>(1, kSlice / (kPanel * row_bytes)) * kPanel;
  for (int64_t row = 0; row < slot.rows; row += slice) {
    if (cancel_) throw Cancelled();
    const int64_t rows = std::min(slice, slot.rows - row);
    pool().run(int((rows + kPanel - 1) / kPanel), [&](int task, int) { pack_panel(row / kPanel + task); });
    if (mapped) drop_pages(data.data() + row * row_bytes, rows * row_bytes);
    done_ += rows * row_bytes;
  }
  PYRT_CHECK(finite, "it holds a value or a scale that is not finite");
  matrix = {to.layout, slot.rows, cols, panel_bytes, packed};
}

std::shared_ptr<Model> ModelBuilder::build() {
  PYRT_CHECK(model_, "the model is built already");
  for (const auto& [name, slot] : slots_)
    PYRT_CHECK(slot.filled || !slot.required, "tensor ", name, " is missing: the model needs it as [", slot.rows, ", ", slot.cols, "]");
  model_->arena.settle();
  return std::move(model_);
}

}  // namespace pyrt
