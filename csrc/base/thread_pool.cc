#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/cpu.h"

namespace pyrt {
namespace {

// A region follows the last one within microseconds, a step the last one within the time to sample a token. Past that,
// waiting costs more energy than waking; under oversubscription, spinning costs the time of whoever has the work.
constexpr int64_t kSpinNs = 50'000, kYieldNs = 200'000;
constexpr int kPausesPerClock = 32;

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

double now_seconds() { return double(now_ns()) * 1e-9; }

// Returns at once if *word differs from `expected`; spurious returns are allowed. 0 seconds stand for ever.
template <class Word>
void futex_wait(const std::atomic<Word>& word, Word expected, double seconds) {
  static_assert(sizeof(word) == 4);
  timespec timeout;
  timeout.tv_sec = time_t(seconds);
  timeout.tv_nsec = long((seconds - double(timeout.tv_sec)) * 1e9);
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, seconds > 0 ? &timeout : nullptr, nullptr, 0);
}

template <class Word>
void futex_wake(const std::atomic<Word>& word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// Pauses, later yields; tells when it is time to park.
class Spin {
 public:
  // One turn. False if the time is over.
  bool turn() {
    if (++turns_ % kPausesPerClock != 0 && !yielding_) {
      cpu_relax();
      return true;
    }
    const int64_t now = now_ns();
    if (start_ == 0) start_ = now;
    if (now - start_ > kYieldNs) return false;
    yielding_ = now - start_ > kSpinNs;
    if (yielding_) sched_yield();
    return true;
  }

 private:
  int64_t start_ = 0;
  int turns_ = 0;
  bool yielding_ = false;
};

// fork() copies only the thread that calls it. Pools compare this with what they were started under.
std::atomic<uint32_t> fork_generation{0};

void watch_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  PYRT_CHECK(registered == 0, "pthread_atfork failed: ", std::strerror(registered));
}

}  // namespace

// ---- the crew --------------------------------------------------------------------------------------------

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads) {
  PYRT_CHECK(n_threads >= 1 && n_threads <= 1024, "threads must be from 1 to 1024, not ", n_threads);
  workers_ = std::make_unique<Worker[]>(size_t(n_threads));
  watch_forks();
  start_workers();
}

ThreadPool::~ThreadPool() {
  // In a forked child there is nobody to join.
  if (fork_generation_ == fork_generation.load(std::memory_order_relaxed)) stop_workers();
}

void ThreadPool::start_workers() {
  fork_generation_ = fork_generation.load(std::memory_order_relaxed);
  // Signals are for the threads of the program that uses us.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (n_started_ = 0; n_started_ < n_threads_ - 1; ++n_started_) {
    Worker& worker = workers_[size_t(n_started_)];
    worker = {this, n_started_ + 1, {}};
    error = pthread_create(&worker.thread, nullptr, worker_main, &worker);
    if (error != 0) break;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return;
  const int got = n_started_ + 1;
  stop_workers();
  throw Error(text("the system grants ", got, " of ", n_threads_, " threads: ", std::strerror(error)));
}

void ThreadPool::stop_workers() {
  stopping_.store(true, std::memory_order_seq_cst);
  wake_count_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wake_count_, INT_MAX);
  for (; n_started_ > 0; --n_started_) pthread_join(workers_[size_t(n_started_ - 1)].thread, nullptr);
  stopping_.store(false, std::memory_order_relaxed);
}

void ThreadPool::revive_after_fork() {
  if (fork_generation_ == fork_generation.load(std::memory_order_relaxed)) return;
  // The parent may have been in the middle of a region.
  unclaimed_.store(0, std::memory_order_relaxed);
  caller_parked_.store(false, std::memory_order_relaxed);
  some_parked_.store(false, std::memory_order_relaxed);
  stopping_.store(false, std::memory_order_relaxed);
  busy_.store(false, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  start_workers();
}

void* ThreadPool::worker_main(void* argument) {
  const Worker& self = *static_cast<Worker*>(argument);
  char name[16];
  std::snprintf(name, sizeof name, "pyrt-%d", self.index);
  pthread_setname_np(pthread_self(), name);
  set_fp_environment(kDefaultFpEnvironment);  // a thread inherits its creator's
  ThreadPool& pool = *self.pool;
  while (pool.wait_for_tasks()) {
    const int left = pool.claim();
    if (left <= 0) continue;
    const int done = pool.run_tasks(left, self.index);
    pool.finished_.fetch_add(done, std::memory_order_seq_cst);
    if (pool.caller_parked_.load(std::memory_order_seq_cst)) futex_wake(pool.finished_, 1);
  }
  return nullptr;
}

bool ThreadPool::wait_for_tasks() {
  Spin spin;
  while (unclaimed_.load(std::memory_order_relaxed) <= 0) {
    if (stopping_.load(std::memory_order_relaxed)) return false;
    if (spin.turn()) continue;
    park_worker();
    spin = Spin();
  }
  return true;
}

// Whoever publishes tasks looks at some_parked_ afterwards; whoever parks looks at the tasks after setting it. Thus one
// of the two sees the other. wake_count_ is read first, so that a wake in between makes the futex return at once.
void ThreadPool::park_worker() {
  const uint32_t before = wake_count_.load(std::memory_order_seq_cst);
  some_parked_.store(true, std::memory_order_seq_cst);
  if (unclaimed_.load(std::memory_order_seq_cst) > 0 || stopping_.load(std::memory_order_seq_cst)) return;
  futex_wait(wake_count_, before, 0);
}

void ThreadPool::wake_workers() {
  if (!some_parked_.load(std::memory_order_seq_cst)) return;
  some_parked_.store(false, std::memory_order_seq_cst);
  wake_count_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wake_count_, INT_MAX);
}

// ---- steps and regions -----------------------------------------------------------------------------------

void ThreadPool::begin_step(const StepControl& control) {
  revive_after_fork();
  control_ = control;
  if (control.poll != nullptr) next_poll_ = now_seconds() + control.poll_every;
  outer_fp_environment_ = fp_environment();
  set_fp_environment(kDefaultFpEnvironment);
  wake_workers();
}

void ThreadPool::end_step() {
  set_fp_environment(outer_fp_environment_);
  control_ = StepControl();
}

// Throws if the step shall end. On the calling thread only: tasks are short, so that it sees a deadline soon enough.
void ThreadPool::checkpoint() {
  if (control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed)) throw Cancelled();
  if (control_.deadline <= 0 && control_.poll == nullptr) return;
  const double now = now_seconds();
  if (control_.deadline > 0 && now >= control_.deadline) throw Cancelled();
  if (control_.poll != nullptr && now >= next_poll_) {
    next_poll_ = now + control_.poll_every;
    control_.poll(control_.poll_arg);
  }
}

void ThreadPool::run_inline(const Region& region) {
  for (int task = 0; task < region.n_tasks; ++task) {
    checkpoint();
    region.fn(region.body, task, 0);
  }
}

void ThreadPool::run_region(const Region& region) {
  if (n_threads_ == 1 || region.n_tasks <= 1) return run_inline(region);
  revive_after_fork();
  if (busy_.exchange(true, std::memory_order_relaxed)) throw Error("a thread pool runs one region at a time");
  region_ = region;
  finished_.store(0, std::memory_order_relaxed);
  // The caller keeps the first task, which saves it a turn on the counter that all are after now.
  unclaimed_.store(region.n_tasks - 1, std::memory_order_seq_cst);
  wake_workers();
  const int done = run_tasks(region.n_tasks, 0);
  wait_until_finished(region.n_tasks - done);
  busy_.store(false, std::memory_order_relaxed);
  if (!failed_.load(std::memory_order_relaxed)) return;
  failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

int ThreadPool::claim() { return unclaimed_.fetch_sub(1, std::memory_order_acq_rel); }

// Runs the task that this thread has claimed, the one that had `left` tasks before it, and then those that it can still
// claim. Returns how many this thread accounts for, dropped ones included.
int ThreadPool::run_tasks(int left, int worker) {
  const Region region = region_;
  const std::atomic<bool>* const cancel = control_.cancel;
  int done = 0;
  while (left > 0) {
    ++done;
    try {
      if (worker == 0) {
        checkpoint();
      } else if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
        throw Cancelled();
      }
      region.fn(region.body, region.n_tasks - left, worker);
    } catch (...) {
      keep_error();
      done += drop_unclaimed();
    }
    left = left > 1 ? claim() : 0;  // whoever had the last one need not ask
  }
  return done;
}

void ThreadPool::keep_error() noexcept {
  if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
}

// To be called while this region cannot end. The tasks dropped count as finished.
int ThreadPool::drop_unclaimed() { return std::max(0, unclaimed_.exchange(0, std::memory_order_acq_rel)); }

// The caller's turn is over; others may still hold tasks.
void ThreadPool::wait_until_finished(int n_tasks) {
  const double patience = control_.poll != nullptr ? std::max(control_.poll_every, 1e-3) : 0;
  Spin spin;
  int finished;
  while ((finished = finished_.load(std::memory_order_acquire)) < n_tasks) {
    if (spin.turn()) continue;
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        checkpoint();
      } catch (...) {
        keep_error();  // nothing is left to drop: the caller stops claiming only when all is claimed
      }
    }
    caller_parked_.store(true, std::memory_order_seq_cst);
    finished = finished_.load(std::memory_order_seq_cst);
    if (finished < n_tasks) futex_wait(finished_, finished, patience);
    caller_parked_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace pyrt
