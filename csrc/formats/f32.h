#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct F32 {  // 4 bytes: one little-endian float
  struct Block {
    Float32 x;
  };
  static constexpr bool kFloat = true;
};
}  // namespace pyrt::formats
