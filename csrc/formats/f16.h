#pragma once
#include "formats/codes.h"
namespace pyrt::formats {
struct F16 {  // 2 bytes: IEEE binary16
  struct Block {
    Float16 x;
  };
  static constexpr bool kFloat = true;
};
}  // namespace pyrt::formats
