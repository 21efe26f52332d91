// Encoders for checkpoints that are converted or quantized on load.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "formats/q4_0.h"
#include "formats/q8_0.h"
#include "packed/packed.h"

namespace pyrt {
namespace {

float round_even(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }  // |x| < 2^22
float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

// Symmetric 8 bits: the largest magnitude becomes 127.
void encode_q8(const float* x, formats::Q8_0::Block& b) {
  float amax = 0;
  for (int i = 0; i < 32; ++i) amax = std::fabs(x[i]) > amax ? std::fabs(x[i]) : amax;
  b.d = f32_to_f16(amax / 127.0f);
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) b.qs[i] = d == 0 ? int8_t(0) : int8_t(clamp(round_even(x[i] / d), -127, 127));
}

double error_q4(const float* x, float d) {
  double sum = 0;
  for (int i = 0; i < 32; ++i) {
    const float e = x[i] - d * clamp(round_even(x[i] / d), -8, 7);
    sum += double(e) * double(e);
  }
  return sum;
}

// 4 bits, codes -8..7: of scales near extreme / -8 the one of least squared error.
void encode_q4(const float* x, formats::Q4_0::Block& b) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i) extreme = std::fabs(x[i]) > std::fabs(extreme) ? x[i] : extreme;
  uint16_t best = 0;
  double least = HUGE_VAL;
  for (int step = -4; step <= 8; ++step) {
    const uint16_t h = f32_to_f16(extreme / (-8.0f + 0.2f * float(step)));
    if ((h & 0x7fff) == 0) continue;
    const double e = error_q4(x, f16_to_f32(h));
    if (e < least) {
      least = e;
      best = h;
    }
  }
  b.d = best;
  const float d = f16_to_f32(best);
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = d == 0 ? 8 : uint8_t(clamp(round_even(x[i] / d), -8, 7) + 8);
  for (int i = 0; i < 16; ++i) b.qs[i] = uint8_t(q[i] | q[i + 16] << 4);
}

template <class Block, void (*kEncode)(const float*, Block&)>
void encode_blocks(const float* x, int64_t cols, uint8_t* out) {
  for (int64_t k = 0; k < cols; k += 32) {
    Block b;
    kEncode(x + k, b);
    std::memcpy(out + k / 32 * int64_t(sizeof b), &b, sizeof b);
  }
}

uint16_t checked_f16(float x) {
  PYRT_CHECK(!(std::fabs(x) > 65504.0f) || std::isinf(x), "the weight ", x, " does not fit into f16");
  return f32_to_f16(x);
}

template <class T, T (*kConvert)(float)>
void convert(const float* x, int64_t cols, uint8_t* out) {
  for (int64_t k = 0; k < cols; ++k) {
    const T t = kConvert(x[k]);
    std::memcpy(out + k * int64_t(sizeof t), &t, sizeof t);
  }
}
float same(float x) { return x; }

struct Encoder {
  std::string_view name;
  void (*encode)(const float* x, int64_t cols, uint8_t* out);
};
constexpr Encoder kEncoders[] = {
    {"F32", convert<float, same>},
    {"F16", convert<uint16_t, checked_f16>},
    {"BF16", convert<uint16_t, f32_to_bf16>},
    {"Q8_0", encode_blocks<formats::Q8_0::Block, encode_q8>},
    {"Q4_0", encode_blocks<formats::Q4_0::Block, encode_q4>},
};

}  // namespace

void encode_row(const Format& to, const float* x, int64_t cols, uint8_t* out) {
  for (const Encoder& e : kEncoders)
    if (e.name == to.name) return e.encode(x, cols, out);
  throw Error(text("there is no way to convert weights to ", to.name));
}

}  // namespace pyrt
