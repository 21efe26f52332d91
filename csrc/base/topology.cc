#include "base/topology.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/check.h"

namespace pyrt {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& parts, const char* word) {
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

// ---- cgroups ---------------------------------------------------------------------------------------------

struct CgroupMount {
  bool v2;
  std::string group;  // the group that is mounted, as /proc/self/cgroup names it
  std::string point;  // where
};

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() && std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      out += char(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<CgroupMount> cgroup_mounts(const std::string& root) {
  std::vector<CgroupMount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // 36 35 98:0 /root /mount/point options [optional fields] - type source super,options
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (v2 || (dash[1] == "cgroup" && contains(split(dash[3], ','), "cpu")))
      mounts.push_back({v2, unescape(fields[3]), unescape(fields[4])});
  }
  return mounts;
}

// CPUs that one group grants, 0 = no limit of its own.
double group_quota(const std::string& folder, bool v2) {
  std::string quota, period;
  if (v2) {
    std::istringstream(first_line(folder + "/cpu.max")) >> quota >> period;
  } else {
    quota = first_line(folder + "/cpu.cfs_quota_us");
    period = first_line(folder + "/cpu.cfs_period_us");
  }
  const double q = std::atof(quota.c_str()), p = std::atof(period.c_str());  // "max" and "-1" are no limit
  return q > 0 && p > 0 ? q / p : 0;
}

// The smallest quota from the group's folder up to the mount point.
double smallest_quota(const CgroupMount& mount, const std::string& group, const std::string& root) {
  // Seen from a container, the group can lie outside of what is mounted; then the mount itself is the nearest known.
  const std::string base = mount.group == "/" ? "" : mount.group;
  const bool inside = group.compare(0, base.size(), base) == 0 &&
                      (group.size() == base.size() || group[base.size()] == '/') &&
                      group.find("/..") == std::string::npos;
  std::string below = inside ? group.substr(base.size()) : "";
  double smallest = 0;
  while (true) {
    const double quota = group_quota(root + mount.point + below, mount.v2);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    if (below.empty()) return smallest;
    below.resize(below.find_last_of('/') == std::string::npos ? 0 : below.find_last_of('/'));
  }
}

// ---- cores and caches ------------------------------------------------------------------------------------

std::string cpu_folder(const std::string& root, int cpu) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

int count_cores(const std::vector<int>& cpus, const std::string& root) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string folder = cpu_folder(root, cpu) + "/topology/";
    std::string siblings = first_line(folder + "core_cpus_list");
    if (siblings.empty()) siblings = first_line(folder + "thread_siblings_list");  // kernels before 5.6
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return std::max(1, int(cores.size()));
}

int64_t parse_size(const std::string& text) {
  char* unit = nullptr;
  const long long number = std::strtoll(text.c_str(), &unit, 10);
  const int64_t scale = *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : *unit == 'G' ? 1024 * 1024 * 1024 : 1;
  return number > 0 ? number * scale : 0;
}

void read_caches(int cpu, const std::string& root, Topology& topology) {
  for (int index = 0;; ++index) {
    const std::string folder = cpu_folder(root, cpu) + "/cache/index" + std::to_string(index);
    const std::string level = first_line(folder + "/level");
    if (level.empty()) return;
    if (first_line(folder + "/type") == "Instruction") continue;
    const int64_t size = parse_size(first_line(folder + "/size"));
    if (level == "1") topology.l1d = size;
    if (level == "2") topology.l2 = size;
    if (level == "3") topology.l3 = size;
  }
}

std::string read_model_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1), value = line.substr(colon + 2);
    if (key == "model name") return value;
    if (key == "CPU implementer") implementer = value;
    if (key == "CPU part") part = value;
  }
  if (part.empty()) return "unknown";
  return "Arm implementer " + implementer + " part " + part;  // aarch64 kernels tell numbers only
}

// A number from 1 to 1024, else 0.
int parse_threads(const std::string& text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 1 && number <= 1024 ? number : 0;
}

}  // namespace

double cgroup_quota(const std::string& root) {
  const std::vector<CgroupMount> mounts = cgroup_mounts(root);
  double smallest = 0;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // id:controller,list:/group - the v2 hierarchy has an empty list; a group's name may hold colons
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !contains(split(controllers, ','), "cpu")) continue;
    for (const CgroupMount& mount : mounts) {
      if (mount.v2 != v2) continue;
      const double quota = smallest_quota(mount, line.substr(second + 1), root);
      if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    }
  }
  return smallest;
}

std::vector<int> affinity_cpus() {
  // The kernel refuses a mask smaller than its own, so grow until it fits.
  for (int n = 1024; n <= 1 << 20; n *= 2) {
    cpu_set_t* mask = CPU_ALLOC(n);
    PYRT_CHECK(mask != nullptr, "out of memory for an affinity mask");
    const size_t bytes = CPU_ALLOC_SIZE(n);
    CPU_ZERO_S(bytes, mask);
    const int failed = sched_getaffinity(0, bytes, mask);
    const int error = errno;
    std::vector<int> cpus;
    for (int cpu = 0; !failed && cpu < n; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, mask)) cpus.push_back(cpu);
    CPU_FREE(mask);
    if (!failed) return cpus;
    if (error != EINVAL) break;
  }
  return {0};
}

Topology read_topology(const std::vector<int>& cpus, const std::string& root) {
  Topology topology;
  topology.model_name = read_model_name(root);
  topology.affinity = std::max(1, int(cpus.size()));
  topology.physical_cores = count_cores(cpus, root);
  topology.quota = cgroup_quota(root);
  if (!cpus.empty()) read_caches(cpus.front(), root, topology);
  return topology;
}

int thread_limit(const Topology& topology, const char* pyrt_threads, const char* omp_num_threads) {
  if (pyrt_threads != nullptr && *pyrt_threads != '\0') {
    const int forced = parse_threads(pyrt_threads);
    PYRT_CHECK(forced > 0, "PYRT_THREADS must be a number from 1 to 1024, not '", pyrt_threads, "'");
    return forced;
  }
  int n = std::min(topology.affinity, topology.physical_cores);
  if (topology.quota > 0) n = int(std::min(double(n), topology.quota));
  if (omp_num_threads != nullptr) {
    // OpenMP allows a list; its first entry is the outermost level.
    const std::string list = omp_num_threads;
    if (const int bound = parse_threads(list.substr(0, list.find(',')))) n = std::min(n, bound);
  }
  return std::max(1, n);
}

int default_threads() {
  return thread_limit(read_topology(affinity_cpus()), std::getenv("PYRT_THREADS"), std::getenv("OMP_NUM_THREADS"));
}

}  // namespace pyrt
