#include "kernels/simd/avxvnni.h"

#define PYRT_ISA avxvnni
#include "kernels/body.inl.h"
