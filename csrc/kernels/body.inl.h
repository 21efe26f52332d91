// Every kernel of one ISA: included by a stub after its simd header, with PYRT_ISA defined.
#pragma once

#include "kernels/table.h"
#include "kernels/simd/each.h"
#include "packed/layout.h"

namespace {
using pyrt::kPanel;
using pyrt::kQuantGroup;
namespace layouts = pyrt::layouts;
#include "kernels/gemm/quant.inl.h"
#include "kernels/gemm/float.inl.h"
#include "kernels/vec/exp.inl.h"
#include "kernels/vec/norm.inl.h"
#include "kernels/attn/attention.inl.h"
}  // namespace

#define PYRT_JOIN_(a, b) a##b
#define PYRT_JOIN(a, b) PYRT_JOIN_(a, b)
#define PYRT_TEXT_(a) #a
#define PYRT_TEXT(a) PYRT_TEXT_(a)

extern "C" const pyrt_kernels PYRT_JOIN(pyrt_kernels_, PYRT_ISA) = {
    PYRT_TEXT(PYRT_ISA),
    gemm_quant<layouts::W4S>, gemm_quant<layouts::W4A>, gemm_quant<layouts::W5S>, gemm_quant<layouts::W5A>,
    gemm_quant<layouts::W8>,  gemm_quant<layouts::W4K>, gemm_quant<layouts::W5K>, gemm_quant<layouts::W6K>,
    gemm_float<LoadF32>,      gemm_float<LoadF16>,      gemm_float<LoadBF16>,
    quantize,                 rms_norm,                 layer_norm,               rope,
    act_times<silu_lanes>,    act_times<gelu_tanh_lanes>, act_times<gelu_erf_lanes>,
    exp_array,                max_sum_exp,              to_f16,
    attention<KvF16>,         attention<KvF32>,         attention<KvInt8>,
    attn_merge,
};
