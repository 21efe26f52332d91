// Time for the programs of this folder.
#pragma once

#include <sched.h>
#include <time.h>

#include "base/cpu.h"

inline double seconds(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  clock_gettime(clock, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

inline void sleep_for(double s) {
  const timespec t{time_t(s), long((s - double(time_t(s))) * 1e9)};
  nanosleep(&t, nullptr);
}

inline void spin_for(double s) {
  const double end = seconds() + s;
  while (seconds() < end) pyrt::cpu_relax();
}

// Yields until condition() or a limit that no sound run comes near.
template <class Condition>
void wait_for(const Condition& condition) {
  const double limit = seconds() + 20;
  while (!condition() && seconds() < limit) sched_yield();
}
