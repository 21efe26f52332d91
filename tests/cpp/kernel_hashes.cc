// Runs every kernel on made-up inputs and prints one FNV-1a hash a kernel: the lines must be the same for every ISA, on
// every machine. usage: kernel_hashes [isa...]; without names, all that run here, which must agree.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "kernels/table.h"
#include "packed/layout.h"

namespace {

constexpr int kRows = 27, kQueries = 11, kPanels = 3, kMaxK = 768, kN = 333, kHeadDim = 80;
constexpr int kWidth = kPanels * pyrt::kPanel;

// A kernel of the table that is not hashed below changes this count. Thirteen are test_tiles': they have no bits to agree on.
static_assert(sizeof(pyrt_kernels) == sizeof(void*) * (1 + 8 + 3 + 10 + 3 + 1 + 3 + 1 + 2 + 1 + 1 + 3 + 3 + 1));

uint64_t state;
uint32_t next_bits() {  // Knuth's MMIX generator, upper half
  state = state * 6364136223846793005u + 1442695040888963407u;
  return uint32_t(state >> 32);
}
float next_float(float scale) { return float(int32_t(next_bits()) >> 8) * (scale * 0x1p-23f); }
void fill(float* x, int n, float scale) {
  for (int i = 0; i < n; ++i) x[i] = next_float(scale);
}
// f16 of either sign, 2^-10 to 2^2.
uint16_t next_f16() {
  const uint32_t r = next_bits();
  return uint16_t((r & 0x83ff) | (5 + (r >> 16) % 12) << 10);
}

struct Hash {
  uint64_t value = 14695981039346656037u;
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) value = (value ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211u;
  }
};

struct Printer {
  uint64_t hashes[64];  // of the first ISA; the others must equal them
  int count = 0, first_count = 0, differences = 0;
  void operator()(const char* kernel, const Hash& h) {
    std::printf("%s %016llx\n", kernel, static_cast<unsigned long long>(h.value));
    if (first_count == 0) {
      hashes[count] = h.value;
    } else if (hashes[count] != h.value) {
      ++differences;
      std::printf("  ^ differs from the first ISA\n");
    }
    ++count;
  }
};

alignas(64) uint8_t weights[kPanels * kMaxK * 64];
alignas(64) float x[kRows * kMaxK], y[kRows * kMaxK], z[kRows * kMaxK], out[kRows * kMaxK];
int8_t q[kRows * kMaxK];
float scale[kRows * kMaxK / 32], sum[kRows * kMaxK / 32];
int32_t sum32[kRows * kMaxK / 32], sum16[kRows * kMaxK / 16];
pyrt_acts acts = {kMaxK, kRows, q, scale, sum, sum32, sum16};

template <class L>
Hash gemm_quant(const pyrt_kernels& t, pyrt_gemm_quant kernel) {
  state = 1;
  fill(x, kRows * kMaxK, 3);
  t.quantize(x, kMaxK, kMaxK, kRows, &acts);
  constexpr int64_t kPanelBytes = kMaxK / L::kRecordK * L::kRecord;
  static_assert(kPanels * kPanelBytes <= int64_t(sizeof weights));
  for (int64_t i = 0; i < kPanels * kPanelBytes; ++i) weights[i] = uint8_t(next_bits());
  constexpr int kHalves = L::kTwoLevel ? 2 : L::kGroups * (L::kMinima ? 2 : 1);
  for (int64_t r = 0; r < kPanels * kPanelBytes; r += L::kRecord)
    for (int i = 0; i < kHalves * pyrt::kPanel; ++i) {
      const uint16_t h = next_f16();
      std::memcpy(weights + r + 2 * i, &h, 2);
    }
  kernel(weights, kPanelBytes, kPanels, 4096, &acts, kRows, out, kWidth);
  Hash h;
  h.add(out, sizeof(float) * kRows * kWidth);
  return h;
}

Hash gemm_float(pyrt_gemm_float kernel, int bytes) {
  state = 2;
  constexpr int64_t k = kMaxK - 3;
  for (int64_t i = 0; i < kPanels * k * pyrt::kPanel; ++i) {
    const float w = next_float(2);
    const uint16_t h = next_f16();
    if (bytes == 4) std::memcpy(weights + 4 * i, &w, 4);
    if (bytes == 2) std::memcpy(weights + 2 * i, &h, 2);
  }
  fill(x, kRows * kMaxK, 3);
  kernel(weights, k * pyrt::kPanel * bytes, kPanels, 0, x, k, kMaxK, kRows, out, kWidth);
  Hash h;
  h.add(out, sizeof(float) * kRows * kWidth);
  return h;
}

Hash quantize(const pyrt_kernels& t) {
  state = 3;
  fill(x, kRows * kMaxK, 5);
  for (int i = 0; i < kMaxK; ++i) x[i] *= float(i / 32) * 0x1p-130f;  // around the least scale
  Hash h;
  for (int n : {kMaxK - 300, kMaxK}) {
    const int flag = t.quantize(x, n, kMaxK, kRows, &acts);
    h.add(&flag, sizeof flag);
    h.add(q, sizeof q);
    h.add(scale, sizeof scale);
    h.add(sum, sizeof sum);
    h.add(sum32, sizeof sum32);
    h.add(sum16, sizeof sum16);
  }
  return h;
}

Hash norm(const pyrt_kernels& t, bool layer) {
  state = 4;
  fill(x, kN, 2);
  fill(y, kN, 1);
  fill(z, kN, 1);
  const int flag = layer ? t.layer_norm(x, y, z, 1e-5f, kN, out) : t.rms_norm(x, y, 1e-6f, kN, out);
  Hash h;
  h.add(&flag, sizeof flag);
  h.add(out, sizeof(float) * kN);
  return h;
}

Hash rope(const pyrt_kernels& t) {
  state = 5;
  fill(x, 4 * kHeadDim, 2);
  fill(y, kHeadDim, 1);
  t.rope(x, 4, kHeadDim, 36, y, y + 36);
  Hash h;
  h.add(x, sizeof(float) * 4 * kHeadDim);
  return h;
}

Hash sums(const pyrt_kernels& t) {
  state = 10;
  fill(x, kN, 2);
  fill(y, kN, 2);
  t.add(x, y, kN);
  t.scale(y, 0.37f, kN, y);
  Hash h;
  h.add(x, sizeof(float) * kN);
  h.add(y, sizeof(float) * kN);
  return h;
}

Hash activation(void (*kernel)(const float*, const float*, int64_t, float*)) {
  state = 6;
  fill(x, kMaxK, 100);
  fill(y, kMaxK, 2);
  Hash h;
  for (float range : {1.0f, 0.05f}) {
    for (int i = 0; i < kMaxK; ++i) x[i] *= range;
    kernel(x, range < 1 ? nullptr : y, kN, out);
    h.add(out, sizeof(float) * kN);
  }
  return h;
}

Hash exponential(const pyrt_kernels& t) {
  state = 7;
  fill(x, kMaxK, 100);
  t.exp(x, kN, out);
  t.max_sum_exp(x, kN, 0.7f, out + kN, out + kN + 1);
  Hash h;
  h.add(out, sizeof(float) * (kN + 2));
  return h;
}

Hash to_f16(const pyrt_kernels& t) {
  state = 8;
  for (int i = 0; i < kMaxK; ++i) {
    const uint32_t bits = next_bits() % 0xff000000u;
    std::memcpy(x + i, &bits, 4);
    if (!(x[i] - x[i] == 0)) x[i] = 0;
  }
  uint16_t half[kMaxK];
  const int64_t overflow = t.to_f16(x, kMaxK - 5, half);
  Hash h;
  h.add(&overflow, sizeof overflow);
  h.add(half, sizeof(uint16_t) * (kMaxK - 5));
  return h;
}

constexpr int kBlocks = 3, kBlockBytes = 2 * 32 * kHeadDim * 4 + 256;

Hash attention(void (*kernel)(const pyrt_attn*), void (*merge)(float*, float*, float*, float, float, const float*, int64_t), int bytes) {
  state = 9;
  static uint8_t pages[kBlocks][kBlockBytes];
  const void* blocks[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    for (int i = 0; i < 64 * kHeadDim; ++i) {
      const float w = next_float(3);
      const uint16_t half = next_f16();
      if (bytes == 4) std::memcpy(pages[b] + 4 * i, &w, 4);
      if (bytes == 2) std::memcpy(pages[b] + 2 * i, &half, 2);
      if (bytes == 1) pages[b][i] = uint8_t(half);
    }
    for (int i = 0; i < 64 && bytes == 1; ++i) {
      const float w = next_float(0x1p-5f);
      std::memcpy(pages[b] + 64 * kHeadDim + 4 * i, &w, 4);
    }
    blocks[b] = pages[b];
  }
  int64_t begin[kQueries], end[kQueries];
  for (int r = 0; r < kQueries; ++r) {
    begin[r] = 32 + (r < 4 ? 0 : 3 * r);
    end[r] = 32 + 8 * r;
  }
  static float m[2 * kQueries], l[2 * kQueries], o[2 * kQueries * kHeadDim];
  fill(x, kQueries * kHeadDim, 1);
  Hash h;
  for (int half = 0; half < 2; ++half) {  // blocks 1 to 3 and 3 to 4 as two splits
    const int64_t first = half ? 3 : 1, last = half ? 4 : 3;
    const pyrt_attn a = {kQueries, kHeadDim, x, begin, end, first, last, blocks + first - 1,
                         m + half * kQueries, l + half * kQueries, o + half * kQueries * kHeadDim};
    kernel(&a);
  }
  h.add(m, sizeof m);
  h.add(l, sizeof l);
  h.add(o, sizeof o);
  for (int r = 0; r < kQueries; ++r)
    if (l[r] > 0 && l[kQueries + r] > 0) {
      merge(m + r, l + r, o + r * kHeadDim, m[kQueries + r], l[kQueries + r], o + (kQueries + r) * kHeadDim, kHeadDim);
      h.add(o + r * kHeadDim, sizeof(float) * kHeadDim);
    }
  return h;
}

void run(const pyrt_kernels& t, Printer& print) {
  print("quantize", quantize(t));
  print("gemm/w4s", gemm_quant<pyrt::layouts::W4S>(t, t.gemm_w4s));
  print("gemm/w4a", gemm_quant<pyrt::layouts::W4A>(t, t.gemm_w4a));
  print("gemm/w5s", gemm_quant<pyrt::layouts::W5S>(t, t.gemm_w5s));
  print("gemm/w5a", gemm_quant<pyrt::layouts::W5A>(t, t.gemm_w5a));
  print("gemm/w8", gemm_quant<pyrt::layouts::W8>(t, t.gemm_w8));
  print("gemm/w4k", gemm_quant<pyrt::layouts::W4K>(t, t.gemm_w4k));
  print("gemm/w5k", gemm_quant<pyrt::layouts::W5K>(t, t.gemm_w5k));
  print("gemm/w6k", gemm_quant<pyrt::layouts::W6K>(t, t.gemm_w6k));
  print("gemm/f32", gemm_float(t.gemm_f32, 4));
  print("gemm/f16", gemm_float(t.gemm_f16, 2));
  print("gemm/bf16", gemm_float(t.gemm_bf16, 2));
  print("rms_norm", norm(t, false));
  print("layer_norm", norm(t, true));
  print("rope", rope(t));
  print("add, scale", sums(t));
  print("silu", activation(t.silu));
  print("gelu_tanh", activation(t.gelu_tanh));
  print("gelu_erf", activation(t.gelu_erf));
  print("exp, max_sum_exp", exponential(t));
  print("to_f16", to_f16(t));
  print("attn/f16, merge", attention(t.attn_f16, t.attn_merge, 2));
  print("attn/f32, merge", attention(t.attn_f32, t.attn_merge, 4));
  print("attn/int8, merge", attention(t.attn_int8, t.attn_merge, 1));
}

}  // namespace

int main(int argc, char** argv) {
  static const char* const kAll[] = {
#define ISA(name, ...) #name,
#include "kernels/isas.def"
#undef ISA
  };
  Printer print{};
  const int named = argc - 1, count = named ? named : int(sizeof kAll / sizeof *kAll);
  for (int i = 0; i < count; ++i) {
    const char* name = named ? argv[i + 1] : kAll[count - 1 - i];  // scalar, the definition, first
    const pyrt_kernels* table = pyrt_kernel_table(name);
    if (!table && !named) continue;
    if (!table) {
      std::printf("isa %s cannot run here\n", name);
      return 2;
    }
    std::printf("isa %s\n", name);
    print.count = 0;
    run(*table, print);
    print.first_count = print.count;
  }
  return print.differences ? 1 : 0;
}
