// Rotary position embedding (Su et al. 2021): angles, their sines and cosines.
#pragma once

#include <cstdint>

namespace pyrt {

// inv_freq[i] = 1 / theta^(2i / dim) for i < dim / 2, by our own double routines, then rounded to float.
void rope_inv_freq(double theta, int64_t dim, float* inv_freq);

// cos and sin [pairs] at an absolute position: the angle is the float product that the reference models form.
void rope_row(const float* inv_freq, int64_t pairs, int32_t position, float* cos, float* sin);

}  // namespace pyrt
