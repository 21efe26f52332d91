// What a quantized block says, in one form for all types: w[i] = (d * sub[i / group]) * (q[i] - zero) + m[i / group].
// Block definitions: the GGUF specification and ggml-common.h of llama.cpp (MIT), read as facts.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace pyrt {

struct Codes {
  uint8_t q[256];    // unsigned codes, in the order of the weights
  uint16_t d, m;     // f16 bits: scale; minimum (flat types: added; two-level types: scale of the minima, subtracted)
  int8_t sub[16];    // two-level types: scale of each group
  uint8_t sub_m[8];  // two-level types: minimum of each group
};

struct Float32 {
  uint32_t bits;
  float value() const {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
};
struct Float16 {
  uint16_t bits;
  float value() const { return f16_to_f32(bits); }
};
struct BFloat16 {
  uint16_t bits;
  float value() const { return bf16_to_f32(bits); }
};

}  // namespace pyrt
