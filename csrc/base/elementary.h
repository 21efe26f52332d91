// Our own elementary functions in double: +, -, *, / and sqrt only, so that every machine gives the same bits.
#pragma once

namespace pyrt {

double exp_f64(double x);                            // relative error below 4e-16; 0 below e^-708
double log_f64(double x);                            // x > 0 and finite; error below 4e-16 relative, or absolute near 1
void sincos_f64(double x, double* sin, double* cos);  // |x| < 2^30; absolute error below 4e-16

}  // namespace pyrt
