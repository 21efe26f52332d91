// How much of the machine this process may use: affinity mask, physical cores, cgroup CPU quota, caches.
// Sources: proc(5), cgroups(7), the kernel's cgroup-v2.rst (cpu.max), sched-bwc.rst and cputopology.rst.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyrt {

struct Topology {
  std::string model_name;        // as the kernel tells it; "unknown" if it does not
  int affinity = 1;              // CPUs that the calling thread may run on
  int physical_cores = 1;        // cores among these, SMT siblings counted once
  double quota = 0;              // CPUs that the tightest cgroup up to the root grants, 0 = no limit
  int64_t l1d = 0, l2 = 0, l3 = 0;  // bytes of the caches that the first of these CPUs sees, 0 = unknown
};

// The CPUs of the calling thread's affinity mask, ascending.
std::vector<int> affinity_cpus();

// `root` stands in front of /proc and /sys, so that a test can give a tree of its own.
Topology read_topology(const std::vector<int>& cpus, const std::string& root = "");

// The smallest cgroup CPU limit, v1 and v2, of this process's group and all above it that are visible; 0 = none.
double cgroup_quota(const std::string& root = "");

// `pyrt_threads` decides if it is set (Error if it is no number from 1 to 1024). Else
// min(affinity, floor(quota), physical cores, omp_num_threads), at least 1. Both strings may be null.
int thread_limit(const Topology& topology, const char* pyrt_threads, const char* omp_num_threads);

// thread_limit for the calling thread with PYRT_THREADS and OMP_NUM_THREADS of the environment.
int default_threads();

}  // namespace pyrt
