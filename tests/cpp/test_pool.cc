// The thread pool: every task once, on every thread, after every pause; errors, cancelling, deadlines, polls.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "clock.h"
#include "expect.h"

using namespace pyrt;

namespace {

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
      wait_for([&] { return arrived == 2; });
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
      wait_for([&] { return worker_has_one.load(); });
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

}  // namespace

int main() {
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
  test_more_threads_than_cores();
  return finish("test_pool");
}
