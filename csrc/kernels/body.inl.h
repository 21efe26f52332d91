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
#ifdef PYRT_TILES
#include "kernels/gemm/tiles.inl.h"
#include "kernels/attn/tiles.inl.h"
#define PYRT_QUANT(L) gemm_quant_tiles<layouts::L>
#define PYRT_IF_TILES(...) __VA_ARGS__
#else
#define PYRT_QUANT(L) gemm_quant<layouts::L>
#define PYRT_IF_TILES(...) nullptr
#endif
}  // namespace

#define PYRT_JOIN_(a, b) a##b
#define PYRT_JOIN(a, b) PYRT_JOIN_(a, b)
#define PYRT_TEXT_(a) #a
#define PYRT_TEXT(a) PYRT_TEXT_(a)

extern "C" const pyrt_kernels PYRT_JOIN(pyrt_kernels_, PYRT_ISA) = {
    PYRT_TEXT(PYRT_ISA),
    PYRT_QUANT(W4S), PYRT_QUANT(W4A), PYRT_QUANT(W5S), PYRT_QUANT(W5A), PYRT_QUANT(W8), PYRT_QUANT(W4K), PYRT_QUANT(W5K), PYRT_QUANT(W6K),
    gemm_float<LoadF32>,      gemm_float<LoadF16>,      gemm_float<LoadBF16>,
    PYRT_IF_TILES(gemm_tiles<layouts::W4S>), PYRT_IF_TILES(gemm_tiles<layouts::W4A>), PYRT_IF_TILES(gemm_tiles<layouts::W5S>),
    PYRT_IF_TILES(gemm_tiles<layouts::W5A>), PYRT_IF_TILES(gemm_tiles<layouts::W8>), PYRT_IF_TILES(gemm_tiles<layouts::W4K>),
    PYRT_IF_TILES(gemm_tiles<layouts::W5K>), PYRT_IF_TILES(gemm_tiles<layouts::W6K>), PYRT_IF_TILES(gemm_tiles<LoadBF16>),
    PYRT_IF_TILES(to_tiles),
    quantize,                 rms_norm,                 layer_norm,               rope,
    add,                      scale,
    act_times<silu_lanes>,    act_times<gelu_tanh_lanes>, act_times<gelu_erf_lanes>,
    exp_array,                max_sum_exp,              to_f16,
    attention<KvF16>,         attention<KvF32>,         attention<KvInt8>,
    PYRT_IF_TILES(attention_tiles<KvF16>), PYRT_IF_TILES(attention_tiles<KvF32>), PYRT_IF_TILES(attention_tiles<KvInt8>),
    attn_merge,
};
