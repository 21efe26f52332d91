#include "model/forward.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/cpu.h"
#include "model/logits.h"
#include "nn/rope.h"

namespace pyrt {
namespace {

using Act = void (*pyrt_kernels::*)(const float* g, const float* u, int64_t n, float* out);
constexpr Act kActs[] = {&pyrt_kernels::silu, &pyrt_kernels::gelu_tanh, &pyrt_kernels::gelu_erf};  // by Activation

void add(const pyrt_kernels& kernels, const Vector& bias, float* x) {
  if (!bias.empty()) kernels.add(x, bias.data(), int64_t(bias.size()));
}

}  // namespace

Runner::Runner(std::shared_ptr<const Model> model, std::shared_ptr<KvCache> cache, const pyrt_kernels& kernels, int threads, bool fast)
    : model_(std::move(model)),
      cache_(std::move(cache)),
      pool_(threads),
      fast_(fast && kernels.to_tiles),
      ctx_{kernels, pool_, stream_ahead()},
      attention_({model_->config.n_heads, model_->config.n_kv_heads, model_->config.head_dim}, *cache_),
      angles_(model_->ropes.size()) {}

// The whole model. Each line is one or two parallel regions over rows or panels.
void Runner::step(const Batch& batch, const StepControl& control, const Logits& out) {
  batch.check(model_->config, *cache_, begun_);
  StepScope scope(pool_, control);
  saturated_ = 0;
  non_finite_ = false;
  reserve(batch);
  embed(batch);
  const int64_t n_layers = model_->config.n_layers;
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    attention_block(batch, layer, layer + 1 == n_layers);
    if (n_rows_ == 0) return;  // no row of this batch wants logits
    mlp_block(layer);
  }
  unembed(out);
}

void Runner::reserve(const Batch& batch) {
  const Config& c = model_->config;
  n_rows_ = batch.n_rows;
  ctx_.tiled = fast_ ? batch.n_prompt : 0;
  hidden_.reserve(n_rows_, c.d_model);
  normed_.reserve(n_rows_, c.d_model);
  result_.reserve(n_rows_, c.d_model);
  joined_.reserve(n_rows_, c.q_dim());
  qkv_[0].reserve(n_rows_, c.q_dim());
  qkv_[1].reserve(n_rows_, c.kv_dim());
  qkv_[2].reserve(n_rows_, c.kv_dim());
  ff_.reserve(n_rows_, c.d_ff);
  if (c.gated_mlp) gate_.reserve(n_rows_, c.d_ff);
  if (ctx_.tiled > 0)
    for (Activations* x : {&normed_, &joined_, &ff_}) x->reserve_tiles();
  const size_t angle_bytes = size_t(n_rows_) * size_t(c.rope_dim) * sizeof(float);
  for (Buffer& b : angles_)
    if (b.size() < angle_bytes) b = Buffer(angle_bytes);
  rows_.resize(size_t(n_rows_));
  for (int64_t r = 0; r < n_rows_; ++r) rows_[size_t(r)] = {batch.positions[r], batch.sequences[r]};
  attention_.plan(ctx_, rows_);
}

// x = embed[token] * embed_scale (+ pos_embed[position]), and the rope angles of every row.
void Runner::embed(const Batch& batch) {
  const Model& m = *model_;
  const int64_t pairs = m.config.rope_dim / 2;
  ctx_.rows(n_rows_, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      float* x = hidden_.row(r);
      m.embed.decode_row(batch.tokens[r], x);
      const float scale = float(m.config.embed_scale);
      if (scale != 1.0f) ctx_.kernels.scale(x, scale, m.config.d_model, x);
      if (m.config.n_positions) {
        float* position = normed_.row(r);
        m.pos_embed.decode_row(batch.positions[r], position);
        ctx_.kernels.add(x, position, m.config.d_model);
      }
      for (size_t s = 0; s < m.ropes.size(); ++s) {
        float* cos = angles_[s].as<float>() + r * 2 * pairs;
        rope_row(m.ropes[s].data(), pairs, batch.positions[r], cos, cos + pairs);
      }
    }
  });
}

bool Runner::norm_row(const NormWeights& norm, const float* x, float* out) const {
  const Config& c = model_->config;
  const float eps = float(c.norm_eps);
  if (c.norm == Norm::rms) return ctx_.kernels.rms_norm(x, norm.w.data(), eps, c.d_model, out) == 0;
  return ctx_.kernels.layer_norm(x, norm.w.data(), norm.bias.empty() ? nullptr : norm.bias.data(), eps, c.d_model, out) == 0;
}

// x += post(result + bias) if a block `before` has left its result; then normed = norm(x), prepared for its consumers.
void Runner::normed(const Context& ctx, const char* what, int64_t layer, const NormWeights& norm, const Linear* before,
                    const NormWeights* post, Activations& x, std::span<const Product> consumers) {
  const int64_t d = model_->config.d_model;
  ctx.rows(n_rows_, [&](int64_t first, int64_t last, int) {
    bool finite = true;
    for (int64_t r = first; r < last; ++r) {
      float* stream = x.row(r);
      if (before) {
        float* result = result_.row(r);
        add(ctx.kernels, before->bias, result);
        if (post) finite &= norm_row(*post, result, result);
        ctx.kernels.add(stream, result, d);
      }
      finite &= norm_row(norm, stream, normed_.row(r));
    }
    finite &= prepare_rows(ctx, consumers, normed_, d, n_rows_, first, last);
    if (!finite) non_finite_ = true;
  });
  if (non_finite_) throw NonFiniteError(text("layer ", layer, ": a value going into ", what, " is not finite"));
}

// Bias, head norms and rotation of one row's q, k and v; then its query is kept and its K and V go into the cache.
void Runner::write_kv(const Batch& batch, int64_t layer, int64_t row) {
  const Config& c = model_->config;
  const Layer& w = model_->layers[size_t(layer)];
  float *q = qkv_[0].row(row), *k = qkv_[1].row(row), *v = qkv_[2].row(row);
  add(ctx_.kernels, w.q.bias, q);
  add(ctx_.kernels, w.k.bias, k);
  add(ctx_.kernels, w.v.bias, v);
  if (c.qk_norm) {
    const float eps = float(c.norm_eps);
    for (int h = 0; h < c.n_heads; ++h)
      ctx_.kernels.rms_norm(q + h * c.head_dim, w.q_norm.data(), eps, c.head_dim, q + h * c.head_dim);
    for (int h = 0; h < c.n_kv_heads; ++h)
      ctx_.kernels.rms_norm(k + h * c.head_dim, w.k_norm.data(), eps, c.head_dim, k + h * c.head_dim);
  }
  if (c.rope_layout != RopeLayout::none) {
    const int64_t pairs = c.rope_dim / 2;
    const float* cos = angles_[size_t(c.layer_rope[size_t(layer)])].as<float>() + row * 2 * pairs;
    ctx_.kernels.rope(q, c.n_heads, c.head_dim, pairs, cos, cos + pairs);
    ctx_.kernels.rope(k, c.n_kv_heads, c.head_dim, pairs, cos, cos + pairs);
  }
  const PageTable& table = batch.tables[size_t(cache_->group_of(layer))];
  const int32_t position = batch.positions[row];
  const int32_t page = table.pages[batch.sequences[row] * table.stride + position / kPageTokens];
  int64_t overflow = 0;
  for (int h = 0; h < c.n_kv_heads; ++h)
    overflow += cache_->format().write(ctx_.kernels, k + h * c.head_dim, v + h * c.head_dim, c.head_dim, cache_->block_dim(),
                                       position % kPageTokens, cache_->block(layer, h, page));
  if (overflow) saturated_ += overflow;
}

// result = o(attention(rope(q), rope(k), v)) with q, k, v = projections of norm(x)
void Runner::attention_block(const Batch& batch, int64_t layer, bool last) {
  const Config& c = model_->config;
  const Layer& w = model_->layers[size_t(layer)];
  const Layer* before = layer > 0 ? &model_->layers[size_t(layer - 1)] : nullptr;
  const Product qkv[] = {{&w.q.w, qkv_[0].row(0), qkv_[0].ld()},
                         {&w.k.w, qkv_[1].row(0), qkv_[1].ld()},
                         {&w.v.w, qkv_[2].row(0), qkv_[2].ld()}};
  normed(ctx_, "attention", layer, w.attn_norm, before ? &before->down : nullptr,
         before && c.post_norms ? &before->mlp_post_norm : nullptr, hidden_, qkv);
  multiply(ctx_, normed_, n_rows_, qkv);
  ctx_.rows(n_rows_, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) write_kv(batch, layer, r);
  });
  if (last) keep_wanted(batch);
  ctx_.rows(n_rows_, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) attention_.put_query(ctx_, r, qkv_[0].row(r), float(c.attn_scale));
  });

  const Product o[] = {{&w.o.w, result_.row(0), result_.ld()}};
  attention_.run(ctx_, layer, batch.tables[size_t(cache_->group_of(layer))], [&](int64_t r) { return joined_.row(r); });
  if (wants_preparing(ctx_, o))
    ctx_.rows(n_rows_, [&](int64_t first, int64_t end, int) {
      if (!prepare_rows(ctx_, o, joined_, c.q_dim(), n_rows_, first, end)) non_finite_ = true;
    });
  if (non_finite_) throw NonFiniteError(text("layer ", layer, ": a result of attention is not finite"));
  multiply(ctx_, joined_, n_rows_, o);
}

// The last layer needs K and V of all rows, the rest only for rows whose logits are asked for: they move to the front.
void Runner::keep_wanted(const Batch& batch) {
  const Config& c = model_->config;
  int64_t kept = 0, kept_tiled = 0;
  for (int64_t r = 0; r < n_rows_; ++r) {
    if (!batch.want[r]) continue;
    kept_tiled += r < ctx_.tiled;
    if (kept != r) {
      std::memcpy(hidden_.row(kept), hidden_.row(r), size_t(c.d_model) * sizeof(float));
      std::memcpy(qkv_[0].row(kept), qkv_[0].row(r), size_t(c.q_dim()) * sizeof(float));
      rows_[size_t(kept)] = rows_[size_t(r)];
    }
    ++kept;
  }
  if (kept == n_rows_) return;
  n_rows_ = kept;
  ctx_.tiled = kept_tiled;
  rows_.resize(size_t(kept));
  attention_.plan(ctx_, rows_);
}

// result = down(act(gate(h)) * up(h)), or down(act(up(h))), with h = norm(x)
void Runner::mlp_block(int64_t layer) {
  const Config& c = model_->config;
  const Layer& w = model_->layers[size_t(layer)];
  const Product up[] = {{&w.up.w, ff_.row(0), ff_.ld()}, {&w.gate.w, gate_.row(0), gate_.ld()}};
  const Product down[] = {{&w.down.w, result_.row(0), result_.ld()}};
  const std::span<const Product> inputs(up, c.gated_mlp ? 2 : 1);
  normed(ctx_, "the feed-forward block", layer, w.mlp_norm, &w.o, c.post_norms ? &w.attn_post_norm : nullptr, hidden_, inputs);
  multiply(ctx_, normed_, n_rows_, inputs);
  const auto act = ctx_.kernels.*kActs[int(c.activation)];
  ctx_.rows(n_rows_, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      float *u = ff_.row(r), *g = c.gated_mlp ? gate_.row(r) : u;
      add(ctx_.kernels, w.up.bias, u);
      if (c.gated_mlp) add(ctx_.kernels, w.gate.bias, g);
      act(g, c.gated_mlp ? u : nullptr, c.d_ff, u);
    }
    if (!prepare_rows(ctx_, down, ff_, c.d_ff, n_rows_, first, last)) non_finite_ = true;
  });
  if (non_finite_) throw NonFiniteError(text("layer ", layer, ": a value inside the feed-forward block is not finite"));
  multiply(ctx_, ff_, n_rows_, down);
}

// logits = head(norm(x)), and what sampling needs of them. The head never multiplies by tiles: mostly one row of a prompt wants it.
void Runner::unembed(const Logits& out) {
  const Model& m = *model_;
  const Layer& last = m.layers.back();
  const int64_t n_vocab = m.config.n_vocab, padded = round_up(n_vocab, kPanel);
  const bool direct = padded == n_vocab;
  if (!direct && tail_.size() < size_t(n_rows_ * padded) * sizeof(float)) tail_ = Buffer(size_t(n_rows_ * padded) * sizeof(float));
  float* values = direct ? out.values : tail_.as<float>();
  const Product head[] = {{&m.unembed(), values, padded}};
  Context exact = ctx_;
  exact.tiled = 0;
  normed(exact, "the final norm", m.config.n_layers, m.final_norm, &last.down, m.config.post_norms ? &last.mlp_post_norm : nullptr,
         hidden_, head);
  multiply(exact, normed_, n_rows_, head);
  ctx_.rows(n_rows_, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      if (!direct) std::memcpy(out.values + r * n_vocab, values + r * padded, size_t(n_vocab) * sizeof(float));
      add(ctx_.kernels, m.head.bias, out.values + r * n_vocab);
    }
  });
  summarize(ctx_, out.values, n_rows_, n_vocab, block_sums_, out.block_max, out.logsumexp);
}

}  // namespace pyrt
