// What a parallel region costs beyond its tasks. usage: bench_pool THREADS...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/thread_pool.h"
#include "clock.h"

using namespace pyrt;

namespace {

// Per region and not in bulk: on a shared machine the median is that of the regions which nobody interrupted.
void bench(int threads) {
  ThreadPool pool(threads);
  std::vector<double> costs(20000);
  for (const double work : {0.0, 5e-6, 20e-6}) {
    int64_t by_workers = 0;
    struct alignas(128) Slot {
      int worker = 0;
    };
    std::vector<Slot> last(size_t(threads), Slot{});
    for (double& cost : costs) {
      const double start = seconds();
      pool.run(threads, [&](int task, int worker) {
        if (work > 0) spin_for(work);
        last[size_t(task)].worker = worker;
      });
      cost = seconds() - start - work;
      for (const Slot& slot : last) by_workers += slot.worker != 0;
    }
    std::sort(costs.begin(), costs.end());
    const auto ns = [&](double part) { return costs[size_t(double(costs.size()) * part)] * 1e9; };
    std::printf("threads %d, tasks of %2.0f us: a region costs %.0f ns (10%%: %.0f, 90%%: %.0f); workers ran %.2f of all\n",
                threads, work * 1e6, ns(0.5), ns(0.1), ns(0.9),
                double(by_workers) / double(threads) / double(costs.size()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) bench(std::atoi(argv[i]));
  return argc > 1 ? 0 : 2;
}
