// What this CPU and its operating system can run, and the floating point environment of the calling thread.
// Intel SDM vol. 1 ch. 13-15 (CPUID, XCR0), vol. 1 ch. 10.2.3 (MXCSR); Arm ARM (FPCR), Linux elf_hwcaps.rst, xstate.rst.
#pragma once

#include <cstdint>
#include <string>

namespace pyrt {

// One bit a feature, to be joined with |. Those of the other architecture exist, but are never there.
enum CpuFeature : uint32_t {
  kAvx2 = 1u << 0,
  kFma = 1u << 1,
  kF16c = 1u << 2,
  kAvxVnni = 1u << 3,
  kAvx512f = 1u << 4,
  kAvx512bw = 1u << 5,
  kAvx512vl = 1u << 6,
  kAvx512dq = 1u << 7,
  kAvx512Vnni = 1u << 8,
  kNeon = 1u << 9,
  kDotProd = 1u << 10,
  kI8mm = 1u << 11,
  kAmxTile = 1u << 12,
  kAmxInt8 = 1u << 13,
  kAmxBf16 = 1u << 14,
};

struct CpuFeatures {
  uint32_t in_cpu = 0;  // what the CPU has
  uint32_t usable = 0;  // of these, what the operating system keeps registers for

  bool has(uint32_t required) const { return (usable & required) == required; }
  // Empty if has(required); else one line that names what is missing and who withholds it.
  std::string why_not(uint32_t required) const;
};

// Asks the CPU once; later calls are free. Where the CPU has tiles (AMX), the first call asks Linux to keep them for this process.
const CpuFeatures& cpu_features();

// Names of the bits set, as /proc/cpuinfo spells them, separated by spaces.
std::string feature_names(uint32_t features);

// MXCSR or FPCR of the calling thread. The default one rounds to nearest, traps nothing and keeps denormals.
extern const uint32_t kDefaultFpEnvironment;
uint32_t fp_environment();
void set_fp_environment(uint32_t environment);

// How far ahead of a stream of weights software should fetch on this CPU, in bytes; 0: not at all. Measured with one
// thread and 2048 columns from memory: on Emerald Rapids 4096 was the best of 0 to 8192, since its streams stop at each
// 4 KB; on Zen 4, 0 gave 90% of the read bandwidth, 4096 gave 73% and 1024 66%.
int64_t stream_ahead();

// Tells the CPU that this thread spins.
void cpu_relax();

}  // namespace pyrt
