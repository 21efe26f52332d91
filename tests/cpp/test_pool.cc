// The thread pool: every task once, errors, cancelling, fork, floating point environment, idle CPU.
// With --bench THREADS, prints what a region costs. With --no-fork, for qemu-user, which dies of threads after a fork.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/thread_pool.h"
#include "expect.h"

using namespace pyrt;

namespace {

double seconds(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  clock_gettime(clock, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

void sleep_for(double s) {
  const timespec t{time_t(s), long((s - double(time_t(s))) * 1e9)};
  nanosleep(&t, nullptr);
}

void spin_for(double s) {
  const double end = seconds() + s;
  while (seconds() < end) cpu_relax();
}

void test_every_task_runs_once() {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int round = 0; round < 400; ++round) {
      const int n = round % 37;
      std::vector<int> runs(size_t(n), 0);
      std::atomic<bool> sound{true};
      pool.run(n, [&](int task, int worker) {
        if (task < 0 || task >= n || worker < 0 || worker >= threads) sound = false;
        ++runs[size_t(task)];  // no atomic: a task belongs to one thread, and run() orders them for the caller
      });
      EXPECT(sound);
      EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), n);
    }
  }
}

void test_claims_ascend_and_workers_take_part() {
  ThreadPool pool(3);
  std::vector<int> last(3, -1), count(3, 0);
  std::atomic<bool> ascending{true};
  pool.run(300, [&](int task, int worker) {
    if (task <= last[size_t(worker)]) ascending = false;
    last[size_t(worker)] = task;
    ++count[size_t(worker)];
    sleep_for(0.0005);
  });
  EXPECT(ascending);
  for (const int c : count) EXPECT(c > 0);
}

void test_regions_after_pauses() {
  // Long enough for workers to yield, to park, and to be on their way there.
  ThreadPool pool(3);
  for (const double pause : {0.0, 0.00004, 0.00019, 0.0002, 0.00021, 0.0005, 0.002}) {
    for (int round = 0; round < 40; ++round) {
      std::atomic<int> sum{0};
      pool.run(6, [&](int task, int) { sum += task; });
      EXPECT_EQ(sum.load(), 15);
      sleep_for(pause);
    }
  }
}

void test_parked_workers_wake_up() {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    sleep_for(0.01);
    std::atomic<int> arrived{0};
    pool.run(2, [&](int, int) {  // ends only if two threads hold a task at once
      ++arrived;
      const double limit = seconds() + 20;
      while (arrived < 2 && seconds() < limit) sched_yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

void test_error_of_any_task_reaches_the_caller() {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int bad = 0; bad < 50; ++bad) {
      std::atomic<int> running{0}, after{0};
      std::string message;
      try {
        pool.run(50, [&](int task, int) {
          ++running;
          spin_for(2e-6);
          --running;
          if (task == bad) throw std::runtime_error("task " + std::to_string(task));
          if (task > bad) ++after;
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, "task " + std::to_string(bad));
      EXPECT_EQ(running.load(), 0);
      if (threads == 1) EXPECT_EQ(after.load(), 0);
    }
    int done = 0;
    pool.run(1, [&](int, int) { ++done; });
    EXPECT_EQ(done, 1);
  }
}

void test_many_errors_at_once() {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round)
    EXPECT_THROWS(std::runtime_error, pool.run(64, [](int, int) { throw std::runtime_error("each"); }));
}

void test_cancel_flag() {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<bool> cancel{false};
    std::atomic<int> runs{0};
    StepControl control;
    control.cancel = &cancel;
    double cancelled_at = 0;
    {
      StepScope step(pool, control);
      EXPECT_THROWS(Cancelled, pool.run(100000, [&](int task, int) {
        ++runs;
        spin_for(1e-5);
        if (task == 100) {
          cancelled_at = seconds();
          cancel = true;
        }
      }));
      EXPECT(seconds() - cancelled_at < 5);  // generous; the count below is the real check
      EXPECT(runs.load() <= 101 + 2 * threads);
      EXPECT_THROWS(Cancelled, pool.run(4, [](int, int) {}));
      EXPECT_THROWS(Cancelled, pool.run(1, [](int, int) {}));
    }
    pool.run(4, [](int, int) {});  // outside of the step, nobody cancels
  }
}

void test_deadline() {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    StepControl control;
    control.deadline = seconds() + 0.03;
    StepScope step(pool, control);
    pool.run(2, [](int, int) {});
    std::atomic<int> runs{0};
    EXPECT_THROWS(Cancelled, pool.run(1000000, [&](int, int) {
      ++runs;
      spin_for(1e-4);
    }));
    EXPECT(seconds() >= control.deadline);
    EXPECT(runs.load() < 1000000);
  }
}

struct Polled {
  int calls = 0;
  int throw_at = -1;
  pthread_t caller = pthread_self();
  static void poll(void* self) {
    Polled& polled = *static_cast<Polled*>(self);
    EXPECT(pthread_equal(polled.caller, pthread_self()));
    if (++polled.calls == polled.throw_at) throw std::runtime_error("signal");
  }
};

void test_poll_runs_on_the_caller_and_may_throw() {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    Polled polled;
    StepControl control;
    control.poll = Polled::poll;
    control.poll_arg = &polled;
    control.poll_every = 0.002;
    {
      StepScope step(pool, control);
      pool.run(200, [](int, int) { spin_for(2e-4); });
      EXPECT(polled.calls >= 3);
    }
    polled = Polled{.throw_at = 3};
    StepScope step(pool, control);
    EXPECT_THROWS(std::runtime_error, pool.run(1000000, [](int, int) { spin_for(1e-4); }));
    EXPECT_EQ(polled.calls, 3);
  }
}

void test_poll_while_the_caller_waits_for_a_worker() {
  ThreadPool pool(2);
  Polled polled;
  StepControl control;
  control.poll = Polled::poll;
  control.poll_arg = &polled;
  control.poll_every = 0.002;
  StepScope step(pool, control);
  std::atomic<bool> worker_has_one{false};
  pool.run(2, [&](int, int worker) {
    if (worker == 0) {
      const double limit = seconds() + 20;
      while (!worker_has_one && seconds() < limit) sched_yield();
      return;
    }
    worker_has_one = true;
    sleep_for(0.05);
  });
  EXPECT(polled.calls >= 2);
}

void test_one_region_at_a_time() {
  ThreadPool pool(2);
  EXPECT_THROWS(Error, pool.run(2, [&](int, int) { pool.run(2, [](int, int) {}); }));
  EXPECT_THROWS(Error, ThreadPool(0));
  EXPECT_THROWS(Error, ThreadPool(1 << 20));
}

// 1e-40 is denormal: with FTZ or DAZ the product is zero.
float denormal_product() {
  volatile float tiny = 1e-40f, two = 2.0f;
  return tiny * two;
}

#if defined(__x86_64__)
constexpr uint32_t kFlushToZero = 0x8040 | 0x1f80;  // FTZ, DAZ
constexpr uint32_t kRoundDown = 0x2000;
#else
constexpr uint32_t kFlushToZero = 1u << 24;  // FZ
constexpr uint32_t kRoundDown = 2u << 22;
#endif

void test_floating_point_environment() {
  const uint32_t before = fp_environment();
  const uint32_t odd = kFlushToZero | kRoundDown;
  set_fp_environment(odd);
  EXPECT_EQ(denormal_product(), 0.0f);  // or this test shows nothing
  {
    ThreadPool pool(3);  // its threads inherit the odd environment
    StepScope step(pool, StepControl());
    std::vector<float> products(64, 0.0f), sums(64, 0.0f);
    std::vector<int> workers(64, -1);
    pool.run(64, [&](int task, int worker) {
      volatile float one = 1.0f, half_ulp = 0x1.8p-24f;
      products[size_t(task)] = denormal_product();
      sums[size_t(task)] = one + half_ulp;
      workers[size_t(task)] = worker;
      sleep_for(0.0002);
    });
    for (const float p : products) EXPECT(p > 0);
    for (const float s : sums) EXPECT_EQ(s, 1.0f + 0x1p-23f);
    EXPECT(*std::max_element(workers.begin(), workers.end()) > 0);
  }
  EXPECT_EQ(fp_environment() & odd, odd);
  set_fp_environment(before);
}

void test_workers_leave_signals_alone() {
  ThreadPool pool(2);
  std::atomic<int> blocked{0}, seen{0};
  pool.run(40, [&](int, int worker) {
    sleep_for(0.0005);
    if (worker == 0) return;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    ++seen;
    blocked += sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1);
  });
  EXPECT(seen > 0);
  EXPECT_EQ(blocked.load(), seen.load());
}

bool region_works(ThreadPool& pool) {
  std::atomic<int> sum{0}, arrived{0};
  pool.run(2, [&](int task, int) {
    sum += task + 1;
    ++arrived;
    const double limit = seconds() + 20;
    while (arrived < 2 && seconds() < limit) sched_yield();
  });
  return sum == 3 && arrived == 2;
}

// ThreadSanitizer does not follow threads that a forked child starts.
#if defined(__SANITIZE_THREAD__)
constexpr bool kCanFork = false;
#elif defined(__has_feature)
constexpr bool kCanFork = !__has_feature(thread_sanitizer);
#else
constexpr bool kCanFork = true;
#endif

void test_fork() {
  for (const double pause : {0.0, 0.01}) {  // workers spinning, workers parked
    ThreadPool pool(3);
    EXPECT(region_works(pool));
    sleep_for(pause);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      bool good = region_works(pool) && region_works(pool);
      {
        StepScope step(pool, StepControl());
        good = good && region_works(pool);
      }
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        pool.~ThreadPool();  // never used here: there is nobody to join
        _exit(0);
      }
      int status = 0;
      good = good && waitpid(grandchild, &status, 0) == grandchild && status == 0;
      pool.~ThreadPool();
      _exit(good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT(region_works(pool));
  }
}

void test_idle_pool_burns_no_cpu() {
  ThreadPool pool(4);
  pool.run(64, [](int, int) { spin_for(1e-5); });
  sleep_for(0.05);
  const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  sleep_for(0.3);
  EXPECT(seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu < 0.01);  // CPU time, not wall time: load does not add to it
}

void test_waiting_for_a_long_task_burns_no_cpu() {
  ThreadPool pool(2);
  std::atomic<bool> worker_has_one{false};
  const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  pool.run(2, [&](int, int worker) {
    if (worker == 0) {
      for (int i = 0; i < 2000 && !worker_has_one; ++i) sleep_for(0.001);
      return;
    }
    worker_has_one = true;
    sleep_for(0.3);
  });
  EXPECT(seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu < 0.1);
}

void test_more_threads_than_cores() {
  ThreadPool pool(16);
  int64_t sum = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> part(32, 0);
    pool.run(32, [&](int task, int) { part[size_t(task)] = task; });
    for (const int64_t p : part) sum += p;
  }
  EXPECT_EQ(sum, int64_t(200) * 496);
}

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
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    for (int i = 2; i < argc; ++i) bench(std::atoi(argv[i]));
    return 0;
  }
  test_every_task_runs_once();
  test_claims_ascend_and_workers_take_part();
  test_regions_after_pauses();
  test_parked_workers_wake_up();
  test_error_of_any_task_reaches_the_caller();
  test_many_errors_at_once();
  test_cancel_flag();
  test_deadline();
  test_poll_runs_on_the_caller_and_may_throw();
  test_poll_while_the_caller_waits_for_a_worker();
  test_one_region_at_a_time();
  test_floating_point_environment();
  test_workers_leave_signals_alone();
  const bool may_fork = argc < 2 || std::strcmp(argv[1], "--no-fork") != 0;
  if (kCanFork && may_fork) test_fork();
  test_idle_pool_burns_no_cpu();
  test_waiting_for_a_long_task_burns_no_cpu();
  test_more_threads_than_cores();
  return finish("test_pool");
}
