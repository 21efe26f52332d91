#include "kernels/simd/neon_i8mm.h"

#define PYRT_ISA neon_i8mm
#include "kernels/body.inl.h"
