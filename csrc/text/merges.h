// Merge rules for a vocabulary: listed ones, and those of pieces that are joined best first, of which
// pyrt/vocab/spm.py tells what they mean.
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

// Rules that are listed as two pieces with a space between, up to the first that is no such thing or makes no piece.
std::vector<Merge> merges_listed(std::span<const std::u32string_view> pieces, std::span<const std::u32string_view> rules);

}  // namespace pyrt
