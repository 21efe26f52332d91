// Work over a whole vocabulary: maxima a block of 256, logsumexp, the candidates that sampling looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/context.h"

namespace pyrt {

// block_max [rows][ceil(n / 256)] and logsumexp [rows] of logits [rows][n]: a sum per block, merged in order.
// `sums` is scratch. NonFiniteError if a logit is not finite.
void summarize(const Context& ctx, const float* logits, int64_t rows, int64_t n, std::vector<float>& sums, float* block_max,
               double* logsumexp);

// logsumexp of scale * logits [n].
double log_sum_exp(const pyrt_kernels& kernels, const float* logits, int64_t n, float scale);

// sums [blocks] of exp(scale * logit - shift) a block of 256.
void block_sums(const pyrt_kernels& kernels, const float* logits, int64_t n, float scale, float shift, double* sums);

// Indices of all logits >= threshold, largest first, ties by index. block_max skips blocks without a candidate.
std::vector<int32_t> above(const float* logits, int64_t n, const float* block_max, float threshold);

// Indices of the k largest logits, largest first, ties by index.
std::vector<int32_t> top_k(const float* logits, int64_t n, const float* block_max, int64_t k);

// Recomputes the maxima of the blocks that hold these indices.
void refresh_block_max(const float* logits, int64_t n, float* block_max, const int32_t* ids, int64_t n_ids);

}  // namespace pyrt
