// Which instruction sets this build holds and this machine runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/table.h"

namespace pyrt {

struct IsaChoice {
  std::string_view name;
  const pyrt_kernels* table;  // null: not usable here
  std::string why;            // one line for `pyrt doctor`
};

const std::vector<IsaChoice>& isa_choices();  // best first, all rows of isas.def that belong to this build
const pyrt_kernels& best_kernels();
// The table of `name`, or of the best ISA if it is empty (PYRT_ISA in the environment is a name too). Error if it is not there.
const pyrt_kernels& choose_kernels(std::string_view name);

}  // namespace pyrt
