// Loops over constants, unrolled by the compiler's front end: each<3>(f) is f(Index<0>), f(Index<1>), f(Index<2>).
#pragma once

namespace {

template <int kValue> struct Index { static constexpr int value = kValue; };

template <int kCount, int kFirst = 0, class Body>
__attribute__((always_inline)) inline void each(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(Index<kFirst>{});
    each<kCount, kFirst + 1>(body);
  }
}

}  // namespace
