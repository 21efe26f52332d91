#include "nn/rope.h"

#include "base/elementary.h"

namespace pyrt {

void rope_inv_freq(double theta, int64_t dim, float* inv_freq) {
  const double log_theta = log_f64(theta);
  for (int64_t i = 0; i < dim / 2; ++i) inv_freq[i] = float(exp_f64(-log_theta * (double(2 * i) / double(dim))));
}

void rope_row(const float* inv_freq, int64_t pairs, int32_t position, float* cos, float* sin) {
  for (int64_t i = 0; i < pairs; ++i) {
    double s, c;
    sincos_f64(double(inv_freq[i] * float(position)), &s, &c);
    cos[i] = float(c);
    sin[i] = float(s);
  }
}

}  // namespace pyrt
