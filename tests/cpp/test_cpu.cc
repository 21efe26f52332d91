// CPU features and topology: the parsers on made-up /proc and /sys trees, the probes on this machine.
#include <sched.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/cpu.h"
#include "base/topology.h"
#include "expect.h"

using namespace pyrt;
namespace fs = std::filesystem;

namespace {

// A folder that stands for / and is gone at the end.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (fs::temp_directory_path() / "pyrt-XXXXXX").string();
    EXPECT(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~FakeRoot() { fs::remove_all(path_); }
  FakeRoot& file(const std::string& name, const std::string& content) {
    const fs::path path = path_ + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
    return *this;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const std::string kV2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

void test_v2_takes_the_tightest_ancestor() {
  FakeRoot root;
  root.file("/proc/self/cgroup", "0::/a/b/c\n").file("/proc/self/mountinfo", kV2Mount);
  EXPECT_EQ(cgroup_quota(root.path()), 0.0);
  root.file("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 0.0);
  root.file("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 4.0);
  root.file("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 1.5);
  root.file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 0.5);
  root.file("/sys/fs/cgroup/elsewhere/cpu.max", "10000 100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 0.5);
}

void test_v1_container_without_namespace() {
  // Docker on v1: the process's group is the root of what is mounted.
  FakeRoot root;
  root.file("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc/inner\n1:name=systemd:/docker/abc\n");
  root.file("/proc/self/mountinfo",
            "40 30 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
            "41 30 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  root.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  root.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 0.0);
  root.file("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "250000\n");
  root.file("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 2.5);
  root.file("/sys/fs/cgroup/memory/cpu.cfs_quota_us", "1\n");
  EXPECT_EQ(cgroup_quota(root.path()), 2.5);
}

void test_group_outside_of_the_mount() {
  for (const char* group : {"0::/../../other\n", "0::/somewhere/else\n", "0::/pod1234\n"}) {
    FakeRoot root;
    root.file("/proc/self/cgroup", group);
    root.file("/proc/self/mountinfo", "30 23 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    root.file("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    EXPECT_EQ(cgroup_quota(root.path()), 3.0);
  }
}

void test_mount_point_with_a_space_and_a_group_with_a_colon() {
  FakeRoot root;
  root.file("/proc/self/cgroup", "0::/a:b\n");
  root.file("/proc/self/mountinfo", "30 23 0:26 / /my\\040cgroup rw - cgroup2 cgroup2 rw\n");
  root.file("/my cgroup/a:b/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_quota(root.path()), 2.0);
}

void test_rubbish_is_no_limit() {
  FakeRoot root;
  EXPECT_EQ(cgroup_quota(root.path()), 0.0);
  root.file("/proc/self/cgroup", "\n:\nrubbish\n0::/a\n").file("/proc/self/mountinfo", "- - -\n\n" + kV2Mount);
  for (const char* content : {"", "\n", "max", "100000", "0 0", "-5 100000", "x y"}) {
    root.file("/sys/fs/cgroup/a/cpu.max", content);
    EXPECT_EQ(cgroup_quota(root.path()), 0.0);
  }
}

void test_cores_and_caches() {
  FakeRoot root;
  const std::string cpu = "/sys/devices/system/cpu/cpu";
  const char* siblings[] = {"0,4", "1,5", "2", "3", "0,4", "1,5"};
  for (int i = 0; i < 6; ++i)  // one kernel names the file so, an older one otherwise
    root.file(cpu + std::to_string(i) + (i < 3 ? "/topology/core_cpus_list" : "/topology/thread_siblings_list"), siblings[i]);
  EXPECT_EQ(read_topology({0, 1, 2, 3, 4, 5}, root.path()).physical_cores, 4);
  EXPECT_EQ(read_topology({0, 4}, root.path()).physical_cores, 1);
  EXPECT_EQ(read_topology({0, 4}, root.path()).affinity, 2);
  EXPECT_EQ(read_topology({8, 9, 10}, root.path()).physical_cores, 3);
  const char* caches[][3] = {{"1", "Data", "48K"}, {"1", "Instruction", "32K"}, {"2", "Unified", "2M"}, {"3", "Unified", "307200K"}};
  for (int i = 0; i < 4; ++i) {
    const std::string folder = cpu + "2/cache/index" + std::to_string(i);
    root.file(folder + "/level", caches[i][0]).file(folder + "/type", caches[i][1]).file(folder + "/size", caches[i][2]);
  }
  const Topology topology = read_topology({2, 3}, root.path());
  EXPECT_EQ(topology.l1d, 48 * 1024);
  EXPECT_EQ(topology.l2, 2 * 1024 * 1024);
  EXPECT_EQ(topology.l3, 300 * 1024 * 1024);
  EXPECT_EQ(read_topology({3}, root.path()).l2, 0);
}

void test_model_name() {
  FakeRoot x86, arm, none;
  x86.file("/proc/cpuinfo", "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2 GHz\n");
  arm.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n");
  EXPECT_EQ(read_topology({0}, x86.path()).model_name, std::string("Some CPU @ 2 GHz"));
  EXPECT_EQ(read_topology({0}, arm.path()).model_name, std::string("Arm implementer 0x41 part 0xd0c"));
  EXPECT_EQ(read_topology({0}, none.path()).model_name, std::string("unknown"));
}

Topology machine(int affinity, int cores, double quota) {
  Topology topology;
  topology.affinity = affinity;
  topology.physical_cores = cores;
  topology.quota = quota;
  return topology;
}

void test_thread_limit() {
  EXPECT_EQ(thread_limit(machine(16, 8, 0), nullptr, nullptr), 8);
  EXPECT_EQ(thread_limit(machine(4, 8, 0), nullptr, nullptr), 4);
  EXPECT_EQ(thread_limit(machine(16, 8, 3.9), nullptr, nullptr), 3);
  EXPECT_EQ(thread_limit(machine(16, 8, 0.5), nullptr, nullptr), 1);
  EXPECT_EQ(thread_limit(machine(16, 8, 1e18), nullptr, nullptr), 8);
  EXPECT_EQ(thread_limit(machine(16, 8, 0), nullptr, "2"), 2);
  EXPECT_EQ(thread_limit(machine(16, 8, 0), nullptr, "3,2"), 3);
  EXPECT_EQ(thread_limit(machine(16, 8, 0), nullptr, "99"), 8);
  for (const char* ignored : {"", "many", "0", "-1"}) EXPECT_EQ(thread_limit(machine(16, 8, 0), nullptr, ignored), 8);
  EXPECT_EQ(thread_limit(machine(16, 8, 1), "12", "2"), 12);
  EXPECT_EQ(thread_limit(machine(16, 8, 0), "", nullptr), 8);
  for (const char* wrong : {"0", "-1", "two", "2,3", "2 ", "1025", "99999999999"})
    EXPECT_THROWS(Error, thread_limit(machine(16, 8, 0), wrong, nullptr));
}

void test_this_machine() {
  const CpuFeatures& here = cpu_features();
  EXPECT_EQ(here.usable & ~here.in_cpu, 0u);
  EXPECT(here.has(0));
  std::printf("usable: %s\n", feature_names(here.usable).c_str());
#if defined(__aarch64__)
  EXPECT(here.has(kNeon));
  EXPECT(!here.has(kAvx2));
#else
  EXPECT_EQ(here.has(kAvx2), bool(__builtin_cpu_supports("avx2")));
  EXPECT_EQ(here.has(kAvx512f | kAvx512Vnni), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni"));
  EXPECT(!here.has(kDotProd));
#endif
  const Topology topology = read_topology(affinity_cpus());
  EXPECT(topology.physical_cores >= 1 && topology.physical_cores <= topology.affinity);
  std::printf("%s: affinity %d, cores %d, quota %g, caches %lld %lld %lld, threads %d\n", topology.model_name.c_str(),
              topology.affinity, topology.physical_cores, topology.quota, (long long)topology.l1d,
              (long long)topology.l2, (long long)topology.l3, default_threads());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(affinity_cpus().back(), &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(read_topology(affinity_cpus()).affinity, 1);
}

void test_why_not() {
  const CpuFeatures features{kAvx2 | kFma | kAvx512f, kAvx2 | kFma};
  EXPECT_EQ(features.why_not(kAvx2 | kFma), std::string());
  EXPECT_EQ(features.why_not(kAvx2 | kF16c | kAvxVnni), std::string("the CPU lacks f16c avx_vnni"));
  EXPECT_EQ(features.why_not(kAvx512f), std::string("the operating system does not enable avx512f"));
  EXPECT(!features.has(kAvx512f));
}

}  // namespace

int main() {
  test_v2_takes_the_tightest_ancestor();
  test_v1_container_without_namespace();
  test_group_outside_of_the_mount();
  test_mount_point_with_a_space_and_a_group_with_a_colon();
  test_rubbish_is_no_limit();
  test_cores_and_caches();
  test_model_name();
  test_thread_limit();
  test_why_not();
  test_this_machine();
  return finish("test_cpu");
}
