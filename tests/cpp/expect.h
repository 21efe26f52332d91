// Checks for the plain programs of this folder: each failure is printed, finish() returns what main returns.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>

inline int failures = 0;

template <class Value>
std::string shown(const Value& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

inline void expect(bool good, const char* file, int line, const std::string& what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "%s:%d: expected %s\n", file, line, what.c_str());
}

template <class A, class B>
void expect_equal(const A& a, const B& b, const char* file, int line, const char* what) {
  expect(a == b, file, line, std::string(what) + ", got " + shown(a) + " and " + shown(b));
}

#define EXPECT(condition) expect((condition), __FILE__, __LINE__, #condition)
#define EXPECT_EQ(a, b) expect_equal((a), (b), __FILE__, __LINE__, #a " == " #b)
#define EXPECT_THROWS(Type, expression)                               \
  do {                                                                \
    bool thrown = false;                                              \
    try {                                                             \
      (void)(expression);                                             \
    } catch (const Type&) {                                           \
      thrown = true;                                                  \
    }                                                                 \
    expect(thrown, __FILE__, __LINE__, #expression " throws " #Type); \
  } while (0)

inline int finish(const char* program) {
  std::printf("%s: %s\n", program, failures == 0 ? "ok" : "FAILED");
  return failures == 0 ? 0 : 1;
}
