#include "nn/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace pyrt {
namespace {

template <class T>
void put(const T* k, const T* v, int64_t d, int64_t d_block, int slot, uint8_t* block) {
  T* keys = reinterpret_cast<T*>(block);
  for (int64_t i = 0; i < d; ++i) keys[i * kPageTokens + slot] = k[i];
  std::memcpy(keys + (kPageTokens + slot) * d_block, v, size_t(d) * sizeof(T));
}

int64_t write_f32(const pyrt_kernels&, const float* k, const float* v, int64_t d, int64_t d_block, int slot, uint8_t* block) {
  put(k, v, d, d_block, slot, block);
  return 0;
}

constexpr int64_t kMaxHeadDim = 1024;

int64_t write_f16(const pyrt_kernels& kernels, const float* k, const float* v, int64_t d, int64_t d_block, int slot,
                  uint8_t* block) {
  uint16_t k16[kMaxHeadDim], v16[kMaxHeadDim];
  const int64_t overflow = kernels.to_f16(k, d, k16) + kernels.to_f16(v, d, v16);
  put(k16, v16, d, d_block, slot, block);
  return overflow;
}

// Symmetric int8 with one scale a token and head, fixed here for good: q = rne(x * (127 / amax)).
float quantize_head(const float* x, int64_t d, int8_t* q) {
  float amax = 0;
  for (int64_t i = 0; i < d; ++i) amax = std::max(amax, std::fabs(x[i]));
  const bool tiny = !(amax >= 0x1p-120f);
  const float inverse = tiny ? 0.0f : 127.0f / amax;
  for (int64_t i = 0; i < d; ++i) q[i] = int8_t((x[i] * inverse + 0x1.8p23f) - 0x1.8p23f);
  return tiny ? 0.0f : amax / 127.0f;
}

int64_t write_int8(const pyrt_kernels&, const float* k, const float* v, int64_t d, int64_t d_block, int slot, uint8_t* block) {
  int8_t k8[kMaxHeadDim], v8[kMaxHeadDim];
  float* scales = reinterpret_cast<float*>(block + 2 * kPageTokens * d_block);
  scales[slot] = quantize_head(k, d, k8);
  scales[kPageTokens + slot] = quantize_head(v, d, v8);
  put(k8, v8, d, d_block, slot, block);
  return 0;
}

constexpr KvFormat kFormats[] = {
    {"f16", 2, 0, write_f16, &pyrt_kernels::attn_f16, &pyrt_kernels::attn_tiles_f16},
    {"f32", 4, 0, write_f32, &pyrt_kernels::attn_f32, &pyrt_kernels::attn_tiles_f32},
    {"int8", 1, 2 * kPageTokens * 4, write_int8, &pyrt_kernels::attn_int8, &pyrt_kernels::attn_tiles_int8},
};

const KvFormat& format_named(std::string_view name) {
  const KvFormat* found = find_kv_format(name);
  PYRT_CHECK(found, "kv_dtype ", name, " is unknown; there are f16, f32, int8");
  return *found;
}

}  // namespace

const KvFormat* find_kv_format(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const KvFormat& f) { return f.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

KvCache::KvCache(std::span<const int> layer_window, int64_t n_kv_heads, int64_t head_dim, std::string_view format)
    : format_(format_named(format)), n_kv_heads_(n_kv_heads), block_dim_((head_dim + 15) / 16 * 16) {
  PYRT_CHECK(head_dim > 0 && head_dim <= kMaxHeadDim, "head_dim ", head_dim, " is not in 1..", kMaxHeadDim);
  block_bytes_ = 2 * kPageTokens * block_dim_ * format_.element_bytes + format_.scale_bytes;
  for (int window : layer_window) {
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.window == window; });
    if (group == groups_.end()) group = groups_.insert(group, Group{window, 0, 0, {}, {}});
    places_.push_back({group - groups_.begin(), group->n_layers++});
  }
  for (Group& g : groups_) g.page_bytes = g.n_layers * n_kv_heads * block_bytes_;
}

void KvCache::resize(int64_t group, int64_t n_pages) {
  PYRT_CHECK(group >= 0 && group < int64_t(groups_.size()), "cache group ", group, " does not exist");
  PYRT_CHECK(n_pages >= 0 && n_pages < (int64_t(1) << 31), n_pages, " cache pages");
  Group& g = groups_[size_t(group)];
  const int64_t have = int64_t(g.pages.size());
  if (n_pages == 0) {
    g.pages.clear();
    g.memory.clear();
    return;
  }
  PYRT_CHECK(n_pages >= have, "a cache group cannot shrink from ", have, " to ", n_pages, " pages, only to 0");
  if (n_pages == have) return;
  g.memory.emplace_back(size_t((n_pages - have) * g.page_bytes));
  for (int64_t i = 0; i < n_pages - have; ++i) g.pages.push_back(g.memory.back().data() + i * g.page_bytes);
}

}  // namespace pyrt
