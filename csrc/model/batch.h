// The rows of one step, as the engine hands them over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "nn/attention.h"

namespace pyrt {

struct Batch {
  int64_t n_rows = 0, n_sequences = 0;
  int64_t n_prompt = 0;  // the first rows are tokens of prompts, the others were generated
  const int32_t* tokens = nullptr;     // [n_rows]
  const int32_t* positions = nullptr;  // [n_rows]; rows of a sequence stand together, positions consecutive
  const int32_t* sequences = nullptr;  // [n_rows] row of the page tables
  const uint8_t* want = nullptr;       // [n_rows] whether the row's logits are asked for
  std::vector<PageTable> tables;       // one a cache group, [n_sequences] rows

  int64_t n_wanted() const;
  // Error that names the row and the value if anything is out of range or a page is missing.
  // `begun` is scratch.
  void check(const Config& config, const KvCache& cache, std::vector<bool>& begun) const;
};

}  // namespace pyrt
