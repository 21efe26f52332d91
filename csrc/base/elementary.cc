#include "base/elementary.h"

#include <bit>
#include <cstdint>

namespace pyrt {
namespace {

// ln 2 and pi/2 in parts: a leading part short enough that its product with the reduction count is exact.
constexpr double kLn2Hi = 0x1.62e42fefa38p-1, kLn2Lo = 0x1.ef35793c7673p-45;
constexpr double kHalfPi1 = 0x1.921fb544p+0, kHalfPi2 = 0x1.0b4611a4p-34, kHalfPi3 = 0x1.13198a2e03707p-65;
constexpr double kToInteger = 0x1.8p52;  // adding and subtracting it rounds to the nearest integer

double scale_by_power_of_two(double x, int64_t n) {
  return x * std::bit_cast<double>(uint64_t(n + 1023) << 52);
}

}  // namespace

double exp_f64(double x) {
  if (!(x == x)) return x;
  if (x < -708) return 0;
  if (x > 709) return std::bit_cast<double>(uint64_t(0x7ff) << 52);
  const double n = (x * 0x1.71547652b82fep+0 + kToInteger) - kToInteger;
  const double r = (x - n * kLn2Hi) - n * kLn2Lo;
  double p = 1.0 / 6227020800.0;  // Taylor to r^13: |r| < 0.3466 leaves 4e-18
  constexpr double kFactorials[] = {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0,
                                    720.0,       120.0,      24.0,      6.0,      2.0,     1.0};
  for (double f : kFactorials) p = p * r + 1.0 / f;
  p = p * r + 1.0;
  const int64_t whole = int64_t(n);
  return whole > 1022 ? scale_by_power_of_two(p, whole - 1) * 2.0 : scale_by_power_of_two(p, whole);
}

double log_f64(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = int64_t(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | (uint64_t(1023) << 52));
  if (m > 0x1.6a09e667f3bcdp+0) {  // keep m in [sqrt(1/2), sqrt(2))
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0), z = s * s;  // log m = 2 (s + s^3/3 + s^5/5 + ...), s^2 < 0.0295
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * z;
  const double n = double(exponent);
  return n * kLn2Hi + (n * kLn2Lo + 2.0 * (s + s * series));
}

void sincos_f64(double x, double* sin, double* cos) {
  const double n = (x * 0x1.45f306dc9c883p-1 + kToInteger) - kToInteger;
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double z = r * r;
  double s = 0, c = 0;  // Taylor to r^17 and r^18: |r| < 0.786 leaves 1e-19
  for (int k = 16; k >= 2; k -= 2) s = (s + 1.0) * (-z / double(k * (k + 1)));
  for (int k = 17; k >= 1; k -= 2) c = (c + 1.0) * (-z / double(k * (k + 1)));
  s = r + r * s;
  c = 1.0 + c;
  const int64_t quadrant = int64_t(n) & 3;
  const double sines[] = {s, c, -s, -c}, cosines[] = {c, -s, -c, s};
  *sin = sines[quadrant];
  *cos = cosines[quadrant];
}

}  // namespace pyrt
