#include "base/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/arena.h"

namespace pyrt {
namespace {

uint64_t sum_of(const uint64_t* p, int64_t n) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += p[i + j];
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

}  // namespace

double read_bandwidth(ThreadPool& pool, int64_t bytes, double seconds) {
  constexpr int64_t kPiece = 1 << 20;
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  const Buffer buffer(size_t(pieces * kPiece));
  pool.run(int(pieces), [&](int piece, int) { std::memset(buffer.data() + piece * kPiece, 1, kPiece); });
  std::atomic<uint64_t> total{0};
  const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  double best = 0;
  const double end = now() + seconds;
  do {
    const double start = now();
    pool.run(int(pieces), [&](int piece, int) {
      total.fetch_add(sum_of(reinterpret_cast<const uint64_t*>(buffer.data() + piece * kPiece), kPiece / 8),
                      std::memory_order_relaxed);
    });
    best = std::max(best, double(pieces * kPiece) / (now() - start));
  } while (now() < end);
  return total.load() ? best : 0;
}

}  // namespace pyrt
