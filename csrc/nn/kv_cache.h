// Keys and values in pages of 32 tokens. A page belongs to a group of layers with the same window and holds, for each
// of these layers and each kv head, one block: K [d][32], V [32][d] (int8: then their scales, f32 [32] each).
// Which page holds which tokens is the caller's business (pyrt/kv.py).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "kernels/table.h"

namespace pyrt {

constexpr int kPageTokens = 32;

// One way to store keys and values.
struct KvFormat {
  std::string_view name;
  int64_t element_bytes, scale_bytes;  // scale_bytes: a block's
  // Writes token `slot` of a block; k, v [d], the block's rows have d_block >= d. Returns how many values overflowed.
  int64_t (*write)(const pyrt_kernels&, const float* k, const float* v, int64_t d, int64_t d_block, int slot, uint8_t* block);
  void (*pyrt_kernels::* attend)(const pyrt_attn*);
  void (*pyrt_kernels::* attend_by_tiles)(const pyrt_attn*);
};
const KvFormat* find_kv_format(std::string_view name);  // f16, f32, int8; null: none of these

class KvCache {
 public:
  // layer_window [n_layers]: 0 or the window of each layer.
  KvCache(std::span<const int> layer_window, int64_t n_kv_heads, int64_t head_dim, std::string_view format);

  struct Group {
    int window;
    int64_t n_layers, page_bytes;
    std::vector<uint8_t*> pages;
    std::vector<Buffer> memory;
  };
  const std::vector<Group>& groups() const { return groups_; }
  // More pages, zeroed; what is there stays where it is. 0 frees all.
  void resize(int64_t group, int64_t n_pages);

  const KvFormat& format() const { return format_; }
  int64_t block_dim() const { return block_dim_; }  // head_dim, padded to 16
  int64_t group_of(int64_t layer) const { return places_[size_t(layer)].group; }
  uint8_t* block(int64_t layer, int64_t kv_head, int64_t page) const {
    const Place& p = places_[size_t(layer)];
    return groups_[size_t(p.group)].pages[size_t(page)] + (p.index * n_kv_heads_ + kv_head) * block_bytes_;
  }

 private:
  struct Place {
    int64_t group, index;  // of a layer: its group, its number there
  };
  const KvFormat& format_;
  int64_t n_kv_heads_, block_dim_, block_bytes_;
  std::vector<Group> groups_;
  std::vector<Place> places_;
};

}  // namespace pyrt
