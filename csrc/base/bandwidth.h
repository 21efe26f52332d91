// How fast this machine reads memory: the limit that generation is held against.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace pyrt {

// Bytes a second that the pool reads of a buffer of `bytes`, best of a few passes within about `seconds`.
double read_bandwidth(ThreadPool& pool, int64_t bytes, double seconds);

}  // namespace pyrt
