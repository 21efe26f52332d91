// The only threads of pyrt: a fixed crew that runs the tasks of one parallel region after another.
//
// A region is published by one store and claimed task by task from one counter. The caller waits for tasks, never for
// threads: a worker that is late, parked or throttled holds up nobody unless it holds a task.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>

namespace pyrt {

// How a step can end early. All is read between tasks; `poll` runs on the calling thread only and may throw.
struct StepControl {
  const std::atomic<bool>* cancel = nullptr;
  double deadline = 0;  // seconds of CLOCK_MONOTONIC, 0 = none
  void (*poll)(void*) = nullptr;
  void* poll_arg = nullptr;
  double poll_every = 0.02;  // seconds
};

// The cancel flag was set or the deadline passed. The region's tasks have run in part.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "cancelled"; }
};

class ThreadPool {
 public:
  // n_threads counts the caller. Error if the system refuses a thread.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return n_threads_; }

  // Between the two, regions obey `control` and the caller has the default floating point environment, as workers
  // always have. Use StepScope.
  void begin_step(const StepControl& control);
  void end_step();

  // Runs fn(task, worker) for each task in 0..n_tasks-1 and returns when all are done; worker is 0 (the caller) to
  // size()-1. Tasks are claimed in ascending order. The first exception out of fn or poll is rethrown here once no
  // task runs any more, the rest of the region left undone. One region at a time, and none inside a task.
  template <class F>
  void run(int n_tasks, F&& fn) {
    using Body = std::remove_reference_t<F>;
    run_region({[](const void* body, int task, int worker) {
                  (*const_cast<Body*>(static_cast<const Body*>(body)))(task, worker);
                },
                std::addressof(fn), n_tasks});
  }

 private:
  struct Region {
    void (*fn)(const void* body, int task, int worker) = nullptr;
    const void* body = nullptr;
    int n_tasks = 0;
  };
  struct Worker {
    ThreadPool* pool;
    int index;
    pthread_t thread;
  };

  void run_region(const Region& region);
  void run_inline(const Region& region);
  int claim();
  int run_tasks(int left, int worker);
  void wait_until_finished(int n_tasks);
  void checkpoint();
  void keep_error() noexcept;
  int drop_unclaimed();

  static void* worker_main(void* worker);
  bool wait_for_tasks();
  void park_worker();
  void wake_workers();
  void start_workers();
  void stop_workers();
  void revive_after_fork();

  static constexpr int kLine = 64;

  // Written by the caller at the start of a region, counted down by all. While a thread holds a claimed task that it
  // has not reported in finished_, region_ and control_ cannot change.
  alignas(kLine) std::atomic<int> unclaimed_{0};
  Region region_;

  alignas(kLine) std::atomic<int> finished_{0};  // tasks of this region, by workers in one sum each
  std::atomic<bool> caller_parked_{false};

  alignas(kLine) std::atomic<uint32_t> wake_count_{0};  // the futex on which workers park
  std::atomic<bool> some_parked_{false};
  std::atomic<bool> stopping_{false};

  alignas(kLine) StepControl control_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by the one that set failed_

  alignas(kLine) double next_poll_ = 0;  // from here on, for the caller alone
  std::atomic<bool> busy_{false};
  uint32_t outer_fp_environment_ = 0;

  const int n_threads_;
  int n_started_ = 0;
  uint32_t fork_generation_ = 0;
  std::unique_ptr<Worker[]> workers_;
};

class StepScope {
 public:
  StepScope(ThreadPool& pool, const StepControl& control) : pool_(pool) { pool_.begin_step(control); }
  ~StepScope() { pool_.end_step(); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  ThreadPool& pool_;
};

}  // namespace pyrt
