// One step: rows of any mix of sequences in, logits of the asked-for rows out.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "model/batch.h"
#include "model/weights.h"
#include "nn/attention.h"
#include "nn/kv_cache.h"
#include "nn/linear.h"

namespace pyrt {

// Where a step's results go; rows are those that want logits, in order.
struct Logits {
  float* values = nullptr;     // [n_wanted][n_vocab]
  float* block_max = nullptr;  // [n_wanted][blocks of 256]
  double* logsumexp = nullptr;  // [n_wanted]
};

constexpr int64_t kLogitBlock = 256;

class Runner {
 public:
  // fast: prompt tokens multiply by bf16 tiles, if the kernels have them.
  Runner(std::shared_ptr<const Model> model, std::shared_ptr<KvCache> cache, const pyrt_kernels& kernels, int threads, bool fast = false);

  // Runs the batch: writes K and V of all rows into the cache and the logits of the rows that want them. Error for a
  // batch out of range, NonFiniteError naming the layer, Cancelled as `control` says.
  void step(const Batch& batch, const StepControl& control, const Logits& out);

  const pyrt_kernels& kernels() const { return ctx_.kernels; }
  ThreadPool& pool() { return pool_; }
  bool fast() const { return fast_; }
  const Model& model() const { return *model_; }
  const KvCache& cache() const { return *cache_; }
  int64_t saturated() const { return saturated_; }  // values beyond f16 in the last step's keys and values

 private:
  void reserve(const Batch& batch);
  void embed(const Batch& batch);
  void attention_block(const Batch& batch, int64_t layer, bool last);
  void write_kv(const Batch& batch, int64_t layer, int64_t row);
  void mlp_block(int64_t layer);
  void unembed(const Logits& out);
  void keep_wanted(const Batch& batch);
  void normed(const Context& ctx, const char* what, int64_t layer, const NormWeights& norm, const Linear* before,
              const NormWeights* post, Activations& x, std::span<const Product> consumers);
  bool norm_row(const NormWeights& norm, const float* x, float* out) const;

  std::shared_ptr<const Model> model_;
  std::shared_ptr<KvCache> cache_;
  ThreadPool pool_;
  bool fast_;
  Context ctx_;
  Attention attention_;
  int64_t n_rows_ = 0;          // rows that are still carried: after the last layer's K and V, only the wanted ones
  std::vector<QueryRow> rows_;  // [n_rows_]
  Activations hidden_;  // x [n_rows][d_model], the residual stream
  Activations normed_;  // [n_rows][d_model]
  Activations joined_;  // [n_rows][q_dim], the heads' results
  Activations ff_;      // [n_rows][d_ff]
  Activations qkv_[3];  // q [n_rows][q_dim], k and v [n_rows][kv_dim]
  Activations gate_;    // [n_rows][d_ff]
  Activations result_;  // [n_rows][d_model], what a block adds to the stream
  std::vector<Buffer> angles_;  // a rope set each: cos, sin [n_rows][pairs]
  Buffer tail_;                 // logits, where n_vocab is no multiple of 16
  std::vector<float> block_sums_;
  std::vector<bool> begun_;
  std::atomic<bool> non_finite_{false};
  std::atomic<int64_t> saturated_{0};
};

}  // namespace pyrt
