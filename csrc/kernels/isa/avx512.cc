#include "kernels/simd/avx512.h"

#define PYRT_ISA avx512
#include "kernels/body.inl.h"
