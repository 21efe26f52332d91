// A model's knobs and weights: immutable once built, shared by threads.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "packed/packed.h"

namespace pyrt {

using Vector = std::vector<float>;  // a bias or a norm; empty: absent

struct Linear {
  PackedMatrix w;  // [out, in]
  Vector bias;     // [out]
};
struct NormWeights {
  Vector w, bias;  // [n]
};
struct Layer {
  NormWeights attn_norm, attn_post_norm, mlp_norm, mlp_post_norm;  // [d_model]
  Vector q_norm, k_norm;                                           // [head_dim]
  Linear q;           // [n_heads * head_dim, d_model]
  Linear k, v;        // [n_kv_heads * head_dim, d_model]
  Linear o;           // [d_model, n_heads * head_dim]
  Linear gate, up;    // [d_ff, d_model]
  Linear down;        // [d_model, d_ff]
};

struct Model {
  Config config;
  PackedMatrix embed;      // [n_vocab, d_model]
  PackedMatrix pos_embed;  // [n_positions, d_model]
  std::vector<Layer> layers;
  NormWeights final_norm;
  Linear head;                // [n_vocab, d_model]; no rows: the embedding serves
  std::vector<Vector> ropes;  // a rope set each: inverse frequencies [rope_dim / 2]
  Arena arena;                // owns the packed weights

  const PackedMatrix& unembed() const { return head.w.rows ? head.w : embed; }
};

// A tensor's place in the model.
struct Slot {
  PackedMatrix* matrix = nullptr;  // one of the two
  Vector* vector = nullptr;
  int64_t rows = 0, cols = 0;
  bool required = true;
  bool rotated = false;  // rows (or a vector's values) are reordered from pairs to halves, head by head
  bool filled = false;
};

class ModelBuilder {
 public:
  ModelBuilder(const Config& config, int threads);

  // Packs a tensor. `store`: the type it is converted to first, empty for none. `mapped`: the data lie in a read-only
  // map of a file, whose pages are dropped as they are used up. Error naming the tensor if the name is not one of this
  // model's, comes twice, or has another shape, size or type than it must.
  void add(const std::string& name, std::string_view format, int64_t rows, int64_t cols, std::span<const uint8_t> data,
           std::string_view store, bool mapped = false);
  // Error naming the first tensor that is missing.
  std::shared_ptr<Model> build();

  // Any thread may call these while another adds.
  void set_threads(int threads) { threads_ = threads; }  // that pack from the next slice on
  void cancel() { cancel_ = true; }                      // what is being added ends in Cancelled
  int64_t done() const { return done_; }                 // bytes of the data that are packed

  static std::map<std::string, Slot> slots_of(Model& model);
  // Row of the packed matrix that holds row `row` of the stored tensor.
  static int64_t packed_row(const Config& config, const Slot& slot, int64_t row);

 private:
  void pack(const Format& from, const Format& to, const Slot& slot, std::span<const uint8_t> data, bool mapped);
  ThreadPool& pool();

  std::shared_ptr<Model> model_;
  std::map<std::string, Slot> slots_;
  std::unique_ptr<ThreadPool> pool_;
  std::atomic<int> threads_;
  std::atomic<bool> cancel_{false};
  std::atomic<int64_t> done_{0};
};

}  // namespace pyrt
