// Merge rules for a vocabulary of pieces that are joined best first; pyrt/vocab/spm.py tells what they mean.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pyrt {

struct Merge {
  int32_t left, right;  // indices of pieces
};

// Rules that make the pieces, in their order, which is best first. Of equal pieces, the first is named.
std::vector<Merge> merges_of(std::span<const std::u32string_view> pieces);

}  // namespace pyrt
