// The core without Python: a small random model of every packed type, run by every ISA, on one and on several threads,
// in one step, in chunks and batched. Prints one hash of the logits a model; the lines must be the same on every machine.
// usage: driver [isa...]; without names, all that run here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "expect.h"
#include "kernels/registry.h"
#include "model/forward.h"
#include "model/weights.h"
#include "nn/rope.h"

namespace {

using namespace pyrt;

class Random {  // Knuth's MMIX generator, upper half
 public:
  uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state_ >> 32);
  }
  float uniform(float scale) { return float(int32_t(bits()) >> 8) * (scale * 0x1p-23f); }

 private:
  uint64_t state_ = 20261129;
};

struct Case {
  const char* name;
  Config config;
  std::map<std::string, std::string> types;  // by the last part of a tensor's name
};

// Offsets of the f16 scales in a block.
const std::map<std::string, std::vector<size_t>> kScales = {{"Q4_0", {0}},    {"Q4_1", {0, 2}}, {"Q5_0", {0}},
                                                            {"Q5_1", {0, 2}}, {"Q8_0", {0}},    {"Q4_K", {0, 2}},
                                                            {"Q5_K", {0, 2}}, {"Q6_K", {208}}};

std::vector<uint8_t> random_tensor(const Format& format, int64_t rows, int64_t cols, Random& random) {
  std::vector<uint8_t> data(size_t(rows * format.row_bytes(cols)));
  if (format.is_float) {
    std::vector<float> row(size_t(rows * cols));
    for (float& x : row) x = (rows == 1 ? 1.0f : 0.0f) + random.uniform(rows == 1 ? 0.2f : 0.15f);
    encode_row(format, row.data(), rows * cols, data.data());
    return data;
  }
  for (uint8_t& byte : data) byte = uint8_t(random.bits() >> 24);
  for (size_t block = 0; block < data.size(); block += size_t(format.block_bytes))
    for (size_t at : kScales.at(std::string(format.name))) {
      const uint16_t h = f32_to_f16(0.002f + random.uniform(0.001f));
      std::memcpy(&data[block + at], &h, 2);
    }
  return data;
}

std::shared_ptr<Model> build(const Case& c) {
  Random random;
  ModelBuilder builder(c.config, 2);
  Model shape;
  shape.config = c.config;
  shape.layers.resize(size_t(c.config.n_layers));
  for (const auto& [name, slot] : ModelBuilder::slots_of(shape)) {
    if (!slot.required) continue;
    const std::string last = name.substr(name.rfind('.') + 1);
    const auto type = c.types.find(last);
    const Format& format = *find_format(slot.matrix && type != c.types.end() ? type->second : "F32");
    builder.add(name, format.name, slot.rows, slot.cols, random_tensor(format, slot.rows, slot.cols, random), "");
  }
  for (int s = 0; s < c.config.n_rope_sets(); ++s) {
    std::vector<float> freq(size_t(c.config.rope_dim / 2));
    rope_inv_freq(s ? 1e4 : 1e6, c.config.rope_dim, freq.data());
    const auto* bytes = reinterpret_cast<const uint8_t*>(freq.data());
    builder.add(text("rope.", s), "F32", 1, int64_t(freq.size()), {bytes, freq.size() * 4}, "");
  }
  return builder.build();
}

constexpr int kTokens = 530, kPages = 17;

// Every 16th row's logits of one sequence of kTokens, `chunk` rows a step; the second sequence of the batch runs along if asked for.
std::vector<float> run(const std::shared_ptr<Model>& model, const pyrt_kernels& kernels, int threads, int chunk, bool beside,
                       const char* kv, bool fast = false) {
  const Config& c = model->config;
  auto cache = std::make_shared<KvCache>(c.layer_window, c.n_kv_heads, c.head_dim, kv);
  std::vector<int32_t> pages(2 * kPages);
  for (int p = 0; p < 2 * kPages; ++p) pages[size_t(p)] = (p * 5 + 3) % (2 * kPages);
  Batch batch;
  for (size_t g = 0; g < cache->groups().size(); ++g) {
    cache->resize(int64_t(g), 2 * kPages);
    batch.tables.push_back({pages.data(), kPages});
  }
  batch.n_sequences = 2;
  Runner runner(model, cache, kernels, threads, fast);
  std::vector<float> all;
  for (int at = 0; at < kTokens; at += chunk) {
    const int n = std::min(chunk, kTokens - at), extra = beside ? std::min(n, 3) : 0;
    std::vector<int32_t> tokens, positions, sequences;
    std::vector<uint8_t> want;
    for (int i = 0; i < n + extra; ++i) {
      tokens.push_back(((i < n ? at + i : i) * 7919 + 11) % c.n_vocab);
      positions.push_back(i < n ? at + i : i - n);
      sequences.push_back(i < n ? 0 : 1);
      want.push_back(i < n && (at + i) % 16 == 1);
    }
    batch.n_rows = n + extra;
    batch.n_prompt = n;
    batch.tokens = tokens.data();
    batch.positions = positions.data();
    batch.sequences = sequences.data();
    batch.want = want.data();
    const int64_t wanted = batch.n_wanted();
    std::vector<float> values(size_t(wanted * c.n_vocab)), block_max(size_t(wanted * ((c.n_vocab + 255) / 256)));
    std::vector<double> logsumexp(static_cast<size_t>(wanted));
    runner.step(batch, {}, {values.data(), block_max.data(), logsumexp.data()});
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Prompts by tiles, where this machine has them: near the exact logits, and the same however they are computed.
void check_fast(const std::shared_ptr<Model>& model, const pyrt_kernels& kernels, const std::vector<float>& exact) {
  const std::vector<float> whole = run(model, kernels, 1, kTokens, false, "f16", true);
  EXPECT(run(model, kernels, 3, 100, false, "f16", true) == whole);
  EXPECT(run(model, kernels, 2, 333, true, "f16", true) == whole);
  double difference = 0, size = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    difference += std::pow(double(whole[i]) - exact[i], 2);
    size += std::pow(double(exact[i]), 2);
  }
  const double relative = std::sqrt(difference / size);
  EXPECT(relative > 0 && relative < 0.05);  // int8 activations and bf16 are each off by some 2^-8 a value
  std::printf("  fast: %g from exact\n", relative);
}

uint64_t hash_of(const std::vector<float>& values) {  // FNV-1a
  uint64_t h = 14695981039346656037u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 1099511628211u;
  return h;
}

Config small() {
  Config c;
  c.n_vocab = 297;
  c.n_layers = 2;
  c.d_model = 256;
  c.n_heads = 6;
  c.n_kv_heads = 2;
  c.head_dim = 40;
  c.d_ff = 256;
  c.norm_eps = 1e-5;
  c.gated_mlp = true;
  c.embed_scale = 1;
  c.attn_scale = 0.16;
  c.rope_layout = RopeLayout::pairs;
  c.rope_dim = 40;
  c.layer_window = {0, 0};
  c.layer_rope = {0, 0};
  return c;
}

std::vector<Case> cases() {
  Case legacy{"legacy", small(), {{"embed", "Q8_0"}, {"q", "Q4_0"}, {"k", "Q4_1"}, {"v", "Q5_0"}, {"gate", "Q5_1"}, {"up", "Q4_1"}, {"down", "Q8_0"}}};
  Case k_quants{"k_quants", small(), {{"embed", "Q6_K"}, {"q", "Q4_K"}, {"k", "Q5_K"}, {"v", "Q6_K"}, {"gate", "Q4_K"}, {"up", "Q5_K"}, {"down", "Q6_K"}}};
  k_quants.config.qk_norm = k_quants.config.post_norms = true;
  k_quants.config.activation = Activation::gelu_tanh;
  k_quants.config.rope_layout = RopeLayout::half;
  k_quants.config.layer_window = {33, 0};
  k_quants.config.layer_rope = {1, 0};
  k_quants.config.embed_scale = 16;
  Case floats{"floats", small(), {{"embed", "F16"}, {"q", "BF16"}, {"k", "F16"}, {"up", "BF16"}, {"down", "F16"}}};
  floats.config.d_model = floats.config.d_ff = 96;
  floats.config.norm = Norm::layer;
  floats.config.gated_mlp = false;
  floats.config.activation = Activation::gelu_erf;
  floats.config.rope_layout = RopeLayout::none;
  floats.config.n_positions = kTokens;
  return {legacy, k_quants, floats};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> named(argv + 1, argv + argc);
  for (int i = 1; i < argc; ++i)
    if (!pyrt_kernel_table(argv[i])) {
      std::printf("isa %s cannot run here\n", argv[i]);
      return 2;
    }
  for (const Case& c : cases()) {
    const std::shared_ptr<Model> model = build(c);
    for (const char* kv : {"f16", "f32", "int8"}) {
      uint64_t first = 0;
      for (const IsaChoice& isa : isa_choices()) {
        if (!isa.table || (!named.empty() && std::find(named.begin(), named.end(), isa.name) == named.end())) continue;
        const std::vector<float> logits = run(model, *isa.table, 1, kTokens, false, kv);
        const uint64_t whole = hash_of(logits);
        if (first == 0) first = whole;
        EXPECT_EQ(whole, first);
        if (std::string(kv) != "f16") continue;
        EXPECT_EQ(hash_of(run(model, *isa.table, 3, 100, false, kv)), first);
        EXPECT_EQ(hash_of(run(model, *isa.table, 2, 333, true, kv)), first);
        if (isa.table->to_tiles) check_fast(model, *isa.table, logits);
      }
      std::printf("%s %s %016llx\n", c.name, kv, static_cast<unsigned long long>(first));
    }
  }
  return finish("driver");
}
