#include "kernels/registry.h"

#include <cstdlib>

#include "base/check.h"
#include "base/cpu.h"

#if defined(__x86_64__)
#define PYRT_IF_x86(...) __VA_ARGS__
#define PYRT_IF_arm64(...)
#else
#define PYRT_IF_x86(...)
#define PYRT_IF_arm64(...) __VA_ARGS__
#endif
#define PYRT_IF_any(...) __VA_ARGS__

extern "C" {
#define ISA(name, machine, features) PYRT_IF_##machine(extern const pyrt_kernels pyrt_kernels_##name;)
#include "kernels/isas.def"
#undef ISA
}

namespace pyrt {
namespace {

std::vector<IsaChoice> find_choices() {
  std::vector<IsaChoice> all;
  const auto add = [&](std::string_view name, uint32_t features, const pyrt_kernels* table) {
    const std::string missing = cpu_features().why_not(features);
    const std::string has = features ? text("has ", feature_names(features)) : "runs on every machine";
    all.push_back({name, missing.empty() ? table : nullptr, missing.empty() ? has : missing});
  };
#define ISA(name, machine, features) PYRT_IF_##machine(add(#name, features, &pyrt_kernels_##name);)
#include "kernels/isas.def"
#undef ISA
  return all;
}

}  // namespace

const std::vector<IsaChoice>& isa_choices() {
  static const std::vector<IsaChoice> choices = find_choices();
  return choices;
}

const pyrt_kernels& best_kernels() {
  for (const IsaChoice& c : isa_choices())
    if (c.table) return *c.table;
  throw Error("no kernels for this machine");  // scalar is always there
}

const pyrt_kernels& choose_kernels(std::string_view name) {
  std::string_view field = "isa";
  if (const char* forced = std::getenv("PYRT_ISA"); name.empty() && forced) name = forced, field = "PYRT_ISA";
  std::string names;
  for (const IsaChoice& c : isa_choices()) {
    if (c.table && (name.empty() || c.name == name)) return *c.table;
    PYRT_CHECK(c.name != name, field, ": ", name, " cannot run on this machine: ", c.why);
    if (c.table) names += text(names.empty() ? "" : ", ", c.name);
  }
  throw Error(text(field, ": ", name, " is unknown; this machine can run ", names));
}

}  // namespace pyrt

extern "C" __attribute__((visibility("default"))) const pyrt_kernels* pyrt_kernel_table(const char* isa) {
  for (const pyrt::IsaChoice& c : pyrt::isa_choices())
    if (isa && c.name == isa) return c.table;
  return nullptr;
}
