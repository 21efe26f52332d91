// The thread pool as a part of its process: floating point environment, signals, fork, idle CPU.
// With --no-fork it leaves fork out, for qemu-user, which dies of threads that a forked child starts.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "clock.h"
#include "expect.h"

using namespace pyrt;

namespace {

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
    wait_for([&] { return arrived == 2; });
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

}  // namespace

int main(int argc, char** argv) {
  const bool may_fork = argc < 2 || std::strcmp(argv[1], "--no-fork") != 0;
  test_floating_point_environment();
  test_workers_leave_signals_alone();
  if (kCanFork && may_fork) test_fork();
  test_idle_pool_burns_no_cpu();
  test_waiting_for_a_long_task_burns_no_cpu();
  return finish("test_pool_process");
}
