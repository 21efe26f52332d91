// Always-on checks. A failed check is a C++ exception, which the binding turns into a Python one; nothing aborts.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace pyrt {

// Bad input: a shape, a size, a name, a value out of range.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An activation, a scale or a logit is infinite or not a number.
class NonFiniteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

#define PYRT_CHECK(condition, ...)                              \
  do {                                                          \
    if (!(condition)) throw ::pyrt::Error(::pyrt::text(__VA_ARGS__)); \
  } while (0)

}  // namespace pyrt
