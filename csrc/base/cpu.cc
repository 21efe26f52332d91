#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace pyrt {
namespace {

struct Named {
  uint32_t feature;
  const char* name;
};

constexpr Named kNames[] = {
    {kAvx2, "avx2"},         {kFma, "fma"},           {kF16c, "f16c"},         {kAvxVnni, "avx_vnni"},
    {kAvx512f, "avx512f"},   {kAvx512bw, "avx512bw"}, {kAvx512vl, "avx512vl"}, {kAvx512dq, "avx512dq"},
    {kAvx512Vnni, "avx512_vnni"}, {kNeon, "asimd"},   {kDotProd, "asimddp"},
    {kI8mm, "i8mm"},         {kAmxTile, "amx_tile"},  {kAmxInt8, "amx_int8"},  {kAmxBf16, "amx_bf16"},
};

#if defined(__x86_64__)

enum Register { kEax, kEbx, kEcx, kEdx };

// State that XCR0 says the operating system saves: bits 1-2 SSE and AVX, bits 5-7 the three parts of AVX-512, bits 17-18
// the configuration and the data of tiles.
constexpr uint64_t kYmmState = 0x06, kZmmState = 0xe6, kTileConfig = 1u << 17, kTileData = 1u << 18, kTileState = kTileConfig | kTileData;

struct CpuidBit {
  uint32_t feature, leaf, subleaf;
  Register reg;
  int bit;
  uint64_t state;
};

constexpr CpuidBit kCpuidBits[] = {
    {kAvx2, 7, 0, kEbx, 5, kYmmState},      {kFma, 1, 0, kEcx, 12, kYmmState},
    {kF16c, 1, 0, kEcx, 29, kYmmState},     {kAvxVnni, 7, 1, kEax, 4, kYmmState},
    {kAvx512f, 7, 0, kEbx, 16, kZmmState},  {kAvx512bw, 7, 0, kEbx, 30, kZmmState},
    {kAvx512vl, 7, 0, kEbx, 31, kZmmState}, {kAvx512dq, 7, 0, kEbx, 17, kZmmState},
    {kAvx512Vnni, 7, 0, kEcx, 11, kZmmState},
    {kAmxTile, 7, 0, kEdx, 24, kTileState}, {kAmxInt8, 7, 0, kEdx, 25, kTileState},
    {kAmxBf16, 7, 0, kEdx, 22, kTileState},
};

bool cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
  if (uint32_t(__get_cpuid_max(0, nullptr)) < leaf) return false;
  __cpuid_count(leaf, 0, out[kEax], out[kEbx], out[kEcx], out[kEdx]);
  if (subleaf == 0) return true;
  if (out[kEax] < subleaf) return false;  // leaf 7 counts its subleaves in EAX
  __cpuid_count(leaf, subleaf, out[kEax], out[kEbx], out[kEcx], out[kEdx]);
  return true;
}

uint64_t saved_state() {
  uint32_t regs[4];
  if (!cpuid(1, 0, regs) || !(regs[kEcx] & (1u << 27))) return 0;  // OSXSAVE: without it, xgetbv faults
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t(high) << 32) | low;
}

// Linux makes room for the 8 KB of tile data only in processes that ask for it.
bool tile_data_granted() {
  constexpr long kRequestPermission = 0x1023, kTileDataFeature = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileDataFeature) == 0;
}

CpuFeatures detect() {
  CpuFeatures found;
  uint64_t state = saved_state();
  if (state & kTileData && !tile_data_granted()) state &= ~kTileData;
  for (const CpuidBit& row : kCpuidBits) {
    uint32_t regs[4];
    if (!cpuid(row.leaf, row.subleaf, regs) || !(regs[row.reg] >> row.bit & 1)) continue;
    found.in_cpu |= row.feature;
    if ((state & row.state) == row.state) found.usable |= row.feature;
  }
  return found;
}

#elif defined(__aarch64__)

CpuFeatures detect() {
  // Linux sets a bit only for what both the CPU and the kernel support.
  constexpr unsigned long kHwcapAsimd = 1ul << 1, kHwcapAsimdDp = 1ul << 20, kHwcap2I8mm = 1ul << 13;
  const unsigned long hwcap = getauxval(AT_HWCAP);
  CpuFeatures found;
  if (hwcap & kHwcapAsimd) found.in_cpu |= kNeon;
  if (hwcap & kHwcapAsimdDp) found.in_cpu |= kDotProd;
  if (getauxval(AT_HWCAP2) & kHwcap2I8mm) found.in_cpu |= kI8mm;
  found.usable = found.in_cpu;
  return found;
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string feature_names(uint32_t features) {
  std::string names;
  for (const Named& row : kNames) {
    if (!(features & row.feature)) continue;
    if (!names.empty()) names += ' ';
    names += row.name;
  }
  return names;
}

std::string CpuFeatures::why_not(uint32_t required) const {
  if (const uint32_t absent = required & ~in_cpu) return "the CPU lacks " + feature_names(absent);
  if (const uint32_t masked = required & ~usable)
    return "the operating system does not enable " + feature_names(masked);
  return "";
}

#if defined(__x86_64__)

const uint32_t kDefaultFpEnvironment = 0x1f80;

uint32_t fp_environment() {
  uint32_t mxcsr;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  return mxcsr;
}

void set_fp_environment(uint32_t environment) { __asm__ volatile("ldmxcsr %0" : : "m"(environment) : "memory"); }

void cpu_relax() { __asm__ volatile("pause" : : : "memory"); }

int64_t stream_ahead() {
  uint32_t regs[4];
  const bool amd = cpuid(0, 0, regs) && regs[kEbx] == 0x68747541;  // "Auth" of AuthenticAMD
  if (!amd) return 4096;
  const bool zen4 = cpuid(7, 0, regs) && regs[kEbx] >> 16 & 1;  // AVX512F: the first of its generations that has it
  return zen4 ? 0 : 3072;
}

#elif defined(__aarch64__)

const uint32_t kDefaultFpEnvironment = 0;

uint32_t fp_environment() {
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return uint32_t(fpcr);
}

void set_fp_environment(uint32_t environment) {
  __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t(environment)) : "memory");
}

void cpu_relax() { __asm__ volatile("isb" : : : "memory"); }

int64_t stream_ahead() { return 4096; }

#endif

}  // namespace pyrt
