#include "nn/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pyrt {

void Attention::plan(const Context& ctx, std::span<const QueryRow> rows) {
  const int64_t g = shape_.queries_per_kv(), d = cache_.block_dim();
  rows_.assign(rows.begin(), rows.end());
  n_rows_ = int64_t(rows.size());
  tiles_.clear();
  for (int64_t r = 0; r < n_rows_; ++r) {
    const bool follows = r > 0 && rows_[size_t(r)].sequence == rows_[size_t(r - 1)].sequence;
    if (follows && tiles_.back().rows < kTileRows && r != ctx.tiled)
      ++tiles_.back().rows;
    else
      tiles_.push_back({r, 1});
  }
  const int64_t queries = shape_.n_heads * n_rows_;
  const size_t bytes = size_t(queries * (2 * d + 2)) * 4;
  if (bytes > state_.size()) state_ = Buffer(bytes);
  q_ = state_.as<float>();
  o_ = q_ + queries * d;
  m_ = o_ + queries * d;
  l_ = m_ + queries;
  const int64_t per_tile = kTileRows * g;
  work_bytes_ = round_up(per_tile * int64_t((d + 2) * sizeof(float) + 2 * sizeof(int64_t)), 64);
  const size_t scratch = size_t(work_bytes_ * ctx.pool.size());
  if (scratch > scratch_.size()) scratch_ = Buffer(scratch);
}

void Attention::put_query(const Context& ctx, int64_t row, const float* q, float scale) {
  const int64_t g = shape_.queries_per_kv(), d = cache_.block_dim();
  for (int64_t h = 0; h < shape_.n_heads; ++h) {
    float* to = q_ + (index(h / g, row) + h % g) * d;
    ctx.kernels.scale(q + h * shape_.head_dim, scale, shape_.head_dim, to);
    std::fill(to + shape_.head_dim, to + d, 0.0f);
  }
}

Attention::Work Attention::work_of(int worker) const {
  const int64_t per_tile = kTileRows * shape_.queries_per_kv();
  auto* begin = reinterpret_cast<int64_t*>(scratch_.data() + worker * work_bytes_);
  auto* m = reinterpret_cast<float*>(begin + 2 * per_tile);
  return {m, m + per_tile, m + 2 * per_tile, begin, begin + per_tile};
}

int64_t Attention::first_split(const Tile& tile, int window) const {
  const int64_t position = rows_[size_t(tile.first)].position;
  return window ? std::max<int64_t>(0, position - window + 1) / kSplit : 0;
}

void Attention::clear(const Tile& tile, int64_t kv_head) {
  const int64_t at = index(kv_head, tile.first), n = tile.rows * shape_.queries_per_kv();
  std::fill(m_ + at, m_ + at + n, -INFINITY);
  std::fill(l_ + at, l_ + at + n, 0.0f);
}

// One split for all queries of a tile, into m, l, o.
void Attention::attend_split(const Context& ctx, int64_t layer, const PageTable& table, const Tile& tile, int64_t kv_head,
                             int64_t split, const Work& work, float* m, float* l, float* o) {
  const int64_t g = shape_.queries_per_kv(), d = cache_.block_dim();
  const int window = cache_.groups()[size_t(cache_.group_of(layer))].window;
  for (int64_t i = 0; i < tile.rows * g; ++i) {
    const int64_t position = rows_[size_t(tile.first + i / g)].position;
    work.begin[i] = window ? std::max<int64_t>(0, position - window + 1) : 0;
    work.end[i] = position + 1;
  }
  const int64_t seen = work.begin[0] / kPageTokens, past = (work.end[tile.rows * g - 1] + kPageTokens - 1) / kPageTokens;
  const int64_t block0 = std::max(split * kSplit / kPageTokens, seen);
  const int64_t block1 = std::min((split + 1) * kSplit / kPageTokens, past);
  const void* blocks[kSplit / kPageTokens];
  const int32_t* pages = table.pages + rows_[size_t(tile.first)].sequence * table.stride;
  for (int64_t b = block0; b < block1; ++b) blocks[b - block0] = cache_.block(layer, kv_head, pages[b]);
  const pyrt_attn call{tile.rows * g, d, q_ + index(kv_head, tile.first) * d, work.begin, work.end, block0, block1, blocks,
                       m, l, o};
  const KvFormat& format = cache_.format();
  (ctx.kernels.*(tile.first < ctx.tiled ? format.attend_by_tiles : format.attend))(&call);
}

void Attention::merge_split(const Context& ctx, const Tile& tile, int64_t kv_head, const float* m, const float* l,
                            const float* o) {
  const int64_t d = cache_.block_dim(), at = index(kv_head, tile.first);
  for (int64_t i = 0; i < tile.rows * shape_.queries_per_kv(); ++i) {
    if (m[i] == -INFINITY) continue;  // the row sees nothing of this split
    float* to = o_ + (at + i) * d;
    if (m_[at + i] != -INFINITY) {
      ctx.kernels.attn_merge(m_ + at + i, l_ + at + i, to, m[i], l[i], o + i * d, d);
    } else {
      m_[at + i] = m[i];
      l_[at + i] = l[i];
      std::memcpy(to, o + i * d, size_t(d) * sizeof(float));
    }
  }
}

void Attention::attend_tile(const Context& ctx, int64_t layer, const PageTable& table, const Tile& tile, int64_t kv_head,
                            int worker) {
  const Work work = work_of(worker);
  const int window = cache_.groups()[size_t(cache_.group_of(layer))].window;
  clear(tile, kv_head);
  for (int64_t s = first_split(tile, window); s <= last_split(tile); ++s) {
    attend_split(ctx, layer, table, tile, kv_head, s, work, work.m, work.l, work.o);
    merge_split(ctx, tile, kv_head, work.m, work.l, work.o);
  }
}

void Attention::attend(const Context& ctx, int64_t layer, const PageTable& table) {
  const int64_t heads = shape_.n_kv_heads, n_tiles = int64_t(tiles_.size());
  const int window = cache_.groups()[size_t(cache_.group_of(layer))].window;
  int64_t splits = 1;
  for (const Tile& t : tiles_) splits = std::max(splits, last_split(t) - first_split(t, window) + 1);
  if (splits == 1 || n_tiles * heads >= 4 * ctx.pool.size()) {
    ctx.pool.run(int(n_tiles * heads), [&](int task, int worker) {
      attend_tile(ctx, layer, table, tiles_[size_t(task / heads)], task % heads, worker);
    });
    return;
  }
  // Few rows over a long context: the splits are the tasks, and their partial results are merged afterwards.
  const int64_t queries = kTileRows * shape_.queries_per_kv(), slot = queries * (cache_.block_dim() + 2);
  const size_t bytes = size_t(n_tiles * heads * splits * slot) * sizeof(float);
  if (bytes > partials_.size()) partials_ = Buffer(bytes + bytes / 2);
  const auto partial = [&](int64_t tile, int64_t head, int64_t s) {
    return partials_.as<float>() + ((tile * heads + head) * splits + s) * slot;
  };
  ctx.pool.run(int(n_tiles * heads * splits), [&](int task, int worker) {
    const int64_t tile = task / (heads * splits), head = task / splits % heads, s = task % splits;
    const int64_t split = first_split(tiles_[size_t(tile)], window) + s;
    if (split > last_split(tiles_[size_t(tile)])) return;
    float* m = partial(tile, head, s);
    attend_split(ctx, layer, table, tiles_[size_t(tile)], head, split, work_of(worker), m, m + queries, m + 2 * queries);
  });
  ctx.pool.run(int(n_tiles * heads), [&](int task, int) {
    const int64_t tile = task / heads, head = task % heads;
    const Tile& t = tiles_[size_t(tile)];
    clear(t, head);
    for (int64_t s = 0; first_split(t, window) + s <= last_split(t); ++s) {
      const float* m = partial(tile, head, s);
      merge_split(ctx, t, head, m, m + queries, m + 2 * queries);
    }
  });
}

}  // namespace pyrt
