// Attention of query rows over the paged cache: softmax(q K^T * scale) V for each head, causal, windowed where asked.
// Keys are taken in blocks of 32 and splits of 512 counted from position 0 and merged in order, so that a row's result
// depends on nothing but its own keys.
#pragma once

#include <span>
#include <vector>

#include "base/arena.h"
#include "nn/context.h"
#include "nn/kv_cache.h"

namespace pyrt {

struct AttentionShape {
  int64_t n_heads, n_kv_heads, head_dim;
  int64_t queries_per_kv() const { return n_heads / n_kv_heads; }
};

// One query row of the batch.
struct QueryRow {
  int32_t position;
  int32_t sequence;
};

// Where the pages of each sequence are: pages[sequence * stride + position / 32], -1 where there is none.
struct PageTable {
  const int32_t* pages;
  int64_t stride;
};

class Attention {
 public:
  Attention(const AttentionShape& shape, const KvCache& cache) : shape_(shape), cache_(cache) {}

  // Rows stand by sequence, positions ascending. To be called before the layers of a step, and again when rows change.
  void plan(const Context& ctx, std::span<const QueryRow> rows);
  // Takes q [n_heads * head_dim] of a planned row, scaled by `scale`.
  void put_query(const Context& ctx, int64_t row, const float* q, float scale);
  // All planned rows; out(row) is written as [n_heads * head_dim].
  template <class Out>
  void run(const Context& ctx, int64_t layer, const PageTable& table, Out&& out) {
    attend(ctx, layer, table);
    const int64_t g = shape_.queries_per_kv(), d = cache_.block_dim();
    ctx.rows(n_rows_, [&](int64_t first, int64_t last, int) {
      for (int64_t row = first; row < last; ++row)
        for (int64_t h = 0; h < shape_.n_heads; ++h) {
          const int64_t at = index(h / g, row) + h % g;
          ctx.kernels.scale(o_ + at * d, 1.0f / l_[at], shape_.head_dim, out(row) + h * shape_.head_dim);
        }
    });
  }

 private:
  struct Tile {  // query rows of one sequence
    int64_t first, rows;
  };
  struct Work {  // of one worker: a split's partial result and the visible range of each row
    float *m, *l, *o;
    int64_t *begin, *end;
  };

  int64_t index(int64_t kv_head, int64_t row) const { return (kv_head * n_rows_ + row) * shape_.queries_per_kv(); }
  void attend(const Context& ctx, int64_t layer, const PageTable& table);
  void attend_tile(const Context& ctx, int64_t layer, const PageTable& table, const Tile& tile, int64_t kv_head, int worker);
  void attend_split(const Context& ctx, int64_t layer, const PageTable& table, const Tile& tile, int64_t kv_head,
                    int64_t split, const Work& work, float* m, float* l, float* o);
  void merge_split(const Context& ctx, const Tile& tile, int64_t kv_head, const float* m, const float* l, const float* o);
  void clear(const Tile& tile, int64_t kv_head);
  Work work_of(int worker) const;
  int64_t first_split(const Tile& tile, int window) const;
  int64_t last_split(const Tile& tile) const { return rows_[size_t(tile.first + tile.rows - 1)].position / kSplit; }

  static constexpr int64_t kSplit = 512, kTileRows = 16;
  AttentionShape shape_;
  const KvCache& cache_;
  int64_t n_rows_ = 0, work_bytes_ = 0;
  std::vector<QueryRow> rows_;
  std::vector<Tile> tiles_;
  Buffer state_, scratch_, partials_;
  // [n_kv_heads][n_rows][queries_per_kv]: scaled queries and results [block_dim], maxima and sums.
  float *q_ = nullptr, *o_ = nullptr, *m_ = nullptr, *l_ = nullptr;
};

}  // namespace pyrt
