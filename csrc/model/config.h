// What a model is, as data: the rows of config.def. No architecture has a name here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pyrt {

enum class Norm { rms, layer };
enum class Activation { silu, gelu_tanh, gelu_erf };
enum class RopeLayout { none, half, pairs };

// The names of an enum's values, in order; they are what Python passes.
template <class E>
struct EnumNames;
template <>
struct EnumNames<Norm> {
  static constexpr std::string_view names[] = {"rms", "layer"};
};
template <>
struct EnumNames<Activation> {
  static constexpr std::string_view names[] = {"silu", "gelu_tanh", "gelu_erf"};
};
template <>
struct EnumNames<RopeLayout> {
  static constexpr std::string_view names[] = {"none", "half", "pairs"};
};

namespace knobs {
using real = double;
using flag = bool;
using list = std::vector<int>;

struct Config {
#define KNOB(type, name, what) type name{};
#include "model/config.def"
#undef KNOB

  int64_t q_dim() const { return int64_t(n_heads) * head_dim; }
  int64_t kv_dim() const { return int64_t(n_kv_heads) * head_dim; }
  int n_rope_sets() const;
  // Error that names the knob if a value is impossible.
  void check() const;
};
}  // namespace knobs
using knobs::Config;

}  // namespace pyrt
