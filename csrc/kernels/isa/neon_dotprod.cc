#include "kernels/simd/neon_dotprod.h"

#define PYRT_ISA neon_dotprod
#include "kernels/body.inl.h"
