#include "kernels/simd/amx.h"

#define PYRT_ISA amx
#include "kernels/body.inl.h"
