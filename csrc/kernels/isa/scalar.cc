#include "kernels/simd/scalar.h"

#define PYRT_ISA scalar
#include "kernels/body.inl.h"
