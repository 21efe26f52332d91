#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pyrt::knobs {

int Config::n_rope_sets() const {
  return rope_layout == RopeLayout::none ? 0 : 1 + *std::max_element(layer_rope.begin(), layer_rope.end());
}

void Config::check() const {
  const auto positive = [](const char* name, int value, int most) {
    PYRT_CHECK(value >= 1 && value <= most, "knob ", name, " is ", value, ", not in 1..", most);
  };
  positive("n_vocab", n_vocab, 1 << 24);
  positive("n_layers", n_layers, 1 << 14);
  positive("d_model", d_model, 1 << 20);
  positive("n_heads", n_heads, 1 << 14);
  positive("n_kv_heads", n_kv_heads, n_heads);
  positive("head_dim", head_dim, 1024);
  positive("d_ff", d_ff, 1 << 22);
  PYRT_CHECK(n_heads % n_kv_heads == 0, "knob n_heads is ", n_heads, ", not a multiple of n_kv_heads ", n_kv_heads);
  PYRT_CHECK(norm_eps >= 0 && norm_eps < 1, "knob norm_eps is ", norm_eps, ", not in 0..1");
  PYRT_CHECK(std::isfinite(embed_scale), "knob embed_scale is ", embed_scale);
  PYRT_CHECK(std::isfinite(attn_scale), "knob attn_scale is ", attn_scale);
  PYRT_CHECK(n_positions >= 0, "knob n_positions is ", n_positions);
  PYRT_CHECK(int(layer_window.size()) == n_layers, "knob layer_window has ", layer_window.size(), " entries for ", n_layers, " layers");
  PYRT_CHECK(int(layer_rope.size()) == n_layers, "knob layer_rope has ", layer_rope.size(), " entries for ", n_layers, " layers");
  for (int w : layer_window) PYRT_CHECK(w >= 0, "knob layer_window holds ", w);
  for (int s : layer_rope) PYRT_CHECK(s >= 0 && s < 16, "knob layer_rope holds ", s, ", not in 0..15");
  if (rope_layout != RopeLayout::none)
    PYRT_CHECK(rope_dim >= 2 && rope_dim % 2 == 0 && rope_dim <= head_dim, "knob rope_dim is ", rope_dim,
               ", not an even number in 2..", head_dim);
}

}  // namespace pyrt::knobs
