#include "kernels/simd/avx2.h"

#define PYRT_ISA avx2
#include "kernels/body.inl.h"
