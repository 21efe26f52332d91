// What every block of the network works with: the kernels of one ISA and the threads.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/table.h"

namespace pyrt {

struct Context {
  const pyrt_kernels& kernels;
  ThreadPool& pool;
  int64_t stream_ahead;  // bytes of weights to fetch ahead, 0: none
  int64_t tiled = 0;     // the step's first rows, prompt tokens in "fast" numerics, multiply by bf16 tiles where weights can

  // fn(first row, last row, worker) over pieces of [0, rows): one piece if there are few rows, so that a single row
  // costs no barrier.
  template <class F>
  void rows(int64_t n, F&& fn) const {
    constexpr int64_t kPiece = 8;
    const int pieces = int((n + kPiece - 1) / kPiece);
    pool.run(pieces, [&](int piece, int worker) {
      const int64_t first = piece * kPiece;
      fn(first, first + kPiece < n ? first + kPiece : n, worker);
    });
  }
};

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace pyrt
