#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct BF16 {  // 2 bytes: the upper half of a float
  struct Block {
    BFloat16 x;
  };
  static constexpr bool kFloat = true;
};
}  // namespace pyrt::formats
