#include "kernels/simd/neon.h"

#define PYRT_ISA neon
#include "kernels/body.inl.h"
