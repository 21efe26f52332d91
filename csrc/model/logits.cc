#include "model/logits.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/elementary.h"
#include "model/forward.h"

namespace pyrt {
namespace {

int64_t blocks_of(int64_t n) { return (n + kLogitBlock - 1) / kLogitBlock; }
int64_t length_of(int64_t n, int64_t block) { return std::min(kLogitBlock, n - block * kLogitBlock); }

// log sum over blocks of sum * e^max, in order of the blocks.
double merge(const float* max, const float* sum, int64_t blocks) {
  float top = -INFINITY;
  for (int64_t b = 0; b < blocks; ++b) top = std::max(top, max[b]);
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += double(sum[b]) * exp_f64(double(max[b]) - double(top));
  return double(top) + log_f64(total);
}

struct Before {  // larger logit first, then smaller index
  const float* logits;
  bool operator()(int32_t a, int32_t b) const { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; }
};

}  // namespace

void summarize(const Context& ctx, const float* logits, int64_t rows, int64_t n, std::vector<float>& sums, float* block_max,
               double* logsumexp) {
  const int64_t blocks = blocks_of(n);
  sums.resize(size_t(rows * blocks));
  constexpr int64_t kPiece = 64;  // blocks a task
  const int64_t pieces = (blocks + kPiece - 1) / kPiece;
  ctx.pool.run(int(rows * pieces), [&](int task, int) {
    const int64_t row = task / pieces, first = task % pieces * kPiece;
    for (int64_t b = first; b < std::min(first + kPiece, blocks); ++b)
      ctx.kernels.max_sum_exp(logits + row * n + b * kLogitBlock, length_of(n, b), 1.0f, block_max + row * blocks + b,
                              &sums[size_t(row * blocks + b)]);
  });
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const float sum = sums[size_t(r * blocks + b)], max = block_max[r * blocks + b];
      if (!(std::isfinite(sum) && std::isfinite(max))) throw NonFiniteError("the head: a logit is not finite");
    }
    logsumexp[r] = merge(block_max + r * blocks, &sums[size_t(r * blocks)], blocks);
  }
}

double log_sum_exp(const pyrt_kernels& kernels, const float* logits, int64_t n, float scale) {
  const int64_t blocks = blocks_of(n);
  std::vector<float> max(static_cast<size_t>(blocks)), sum(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b)
    kernels.max_sum_exp(logits + b * kLogitBlock, length_of(n, b), scale, &max[size_t(b)], &sum[size_t(b)]);
  return merge(max.data(), sum.data(), blocks);
}

void block_sums(const pyrt_kernels& kernels, const float* logits, int64_t n, float scale, float shift, double* sums) {
  for (int64_t b = 0; b < blocks_of(n); ++b) {
    float max, sum;
    kernels.max_sum_exp(logits + b * kLogitBlock, length_of(n, b), scale, &max, &sum);
    sums[b] = double(sum) * exp_f64(double(max) - double(shift));
  }
}

std::vector<int32_t> above(const float* logits, int64_t n, const float* block_max, float threshold) {
  std::vector<int32_t> ids;
  for (int64_t b = 0; b < blocks_of(n); ++b) {
    if (!(block_max[b] >= threshold)) continue;
    for (int64_t i = b * kLogitBlock; i < b * kLogitBlock + length_of(n, b); ++i)
      if (logits[i] >= threshold) ids.push_back(int32_t(i));
  }
  std::sort(ids.begin(), ids.end(), Before{logits});
  return ids;
}

std::vector<int32_t> top_k(const float* logits, int64_t n, const float* block_max, int64_t k) {
  k = std::min(k, n);
  if (k <= 0) return {};
  // The k-th largest block maximum is a lower bound of the k-th largest logit.
  const int64_t blocks = blocks_of(n);
  float bound = -INFINITY;
  if (k <= blocks) {
    std::vector<float> maxima(block_max, block_max + blocks);
    std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
    bound = maxima[size_t(k - 1)];
  }
  std::vector<int32_t> ids;
  for (int64_t b = 0; b < blocks; ++b) {
    if (!(block_max[b] >= bound)) continue;
    for (int64_t i = b * kLogitBlock; i < b * kLogitBlock + length_of(n, b); ++i)
      if (logits[i] >= bound) ids.push_back(int32_t(i));
  }
  std::partial_sort(ids.begin(), ids.begin() + k, ids.end(), Before{logits});
  ids.resize(size_t(k));
  return ids;
}

void refresh_block_max(const float* logits, int64_t n, float* block_max, const int32_t* ids, int64_t n_ids) {
  for (int64_t j = 0; j < n_ids; ++j) {
    const int64_t b = ids[j] / kLogitBlock;
    const float* block = logits + b * kLogitBlock;
    block_max[b] = *std::max_element(block, block + length_of(n, b));
  }
}

}  // namespace pyrt
