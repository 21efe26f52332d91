/* The kernels of one instruction set as a plain C struct of function pointers: the core calls them through it, and
 * tests and bench/kernels.py load the same table with cffi. All strides are in elements. Outputs never alias inputs unless said. */
#ifndef PYRT_KERNELS_TABLE_H
#define PYRT_KERNELS_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of int8 activations, one scale per 32 values: x ~ q * scale. k is padded to a multiple of 64 with zero codes and scales.
 * Group by group, so that the rows of a group stand together; the arrays may point at a first row r of ld. */
typedef struct pyrt_acts {
  int64_t k;      /* padded row length */
  int64_t ld;     /* rows from group to group */
  int8_t* q;      /* [k/32][ld][32] codes, -127..127 */
  float* scale;   /* [k/32][ld]     amax / 127 */
  float* sum;     /* [k/32][ld]     scale * sum of the group's codes */
  int32_t* sum32; /* [k/32][ld]     sum of the group's codes */
  int32_t* sum16; /* [k/16][ld]     sum of each 16 codes */
} pyrt_acts;

/* One call of attention: query rows that share a kv head, against key blocks of 32 tokens, within one split of 512. */
typedef struct pyrt_attn {
  int64_t rows, d;           /* query rows; head_dim, a multiple of 16 */
  const float* q;            /* [rows][d], scaled already */
  const int64_t* begin;      /* [rows] first key a row sees; both must not decrease from row to row */
  const int64_t* end;        /* [rows] one past the last key a row sees */
  int64_t block0, block1;    /* key blocks [block0, block1), counted from position 0 */
  const void* const* blocks; /* [block1 - block0] K [d][32], then V [32][d]; for int8 then K scales f32 [32], V scales f32 [32] */
  float* m;                  /* [rows] out: running maximum of the scores, -inf where a row sees nothing here */
  float* l;                  /* [rows] out: sum of exp(score - m) */
  float* o;                  /* [rows][d] out: sum of exp(score - m) * V, not divided by l */
} pyrt_attn;

/* out[r][16 p + n] = sum over k of w[16 p + n][k] * x[r][k], for panels [0, panels) and rows [0, rows). Weights are fetched
 * `ahead` bytes before they are read; 0: that is left to the hardware. */
typedef void (*pyrt_gemm_quant)(const uint8_t* w, int64_t panel_bytes, int64_t panels, int64_t ahead, const pyrt_acts* x, int64_t rows, float* out, int64_t ldo);
/* The same for float panels [k][16] and float activations x [rows][ldx]. */
typedef void (*pyrt_gemm_float)(const uint8_t* w, int64_t panel_bytes, int64_t panels, int64_t ahead, const float* x, int64_t k, int64_t ldx, int64_t rows, float* out, int64_t ldo);
/* The same by bf16 tiles, of quantized and bf16 panels: each output's sum depends on its own row and panel alone, but not on the
 * ISA to the bit. x: bf16 as to_tiles writes it, room for a multiple of 16 rows. */
typedef void (*pyrt_gemm_tiles)(const uint8_t* w, int64_t panel_bytes, int64_t panels, const uint16_t* x, int64_t k, int64_t rows, float* out, int64_t ldo);

typedef struct pyrt_kernels {
  const char* isa;
  pyrt_gemm_quant gemm_w4s, gemm_w4a, gemm_w5s, gemm_w5a, gemm_w8, gemm_w4k, gemm_w5k, gemm_w6k;
  pyrt_gemm_float gemm_f32, gemm_f16, gemm_bf16;
  /* Null where the CPU has no tiles. */
  pyrt_gemm_tiles tiles_w4s, tiles_w4a, tiles_w5s, tiles_w5a, tiles_w8, tiles_w4k, tiles_w5k, tiles_w6k, tiles_bf16;
  /* Writes x [rows][ldx], n values a row, as rows [row, row + rows) of [16 rows][32 k] tiles, all k (padded to 64, with zeros) of 16
   * rows together. Null where the CPU has no tiles. 0: all finite. */
  int (*to_tiles)(const float* x, int64_t n, int64_t ldx, int64_t row, int64_t rows, uint16_t* out);

  /* Quantizes x [rows][ldx], n values a row, into rows of `out`; values beyond n are zero. 0: all finite. */
  int (*quantize)(const float* x, int64_t n, int64_t ldx, int64_t rows, const pyrt_acts* out);
  /* out = x / sqrt(mean(x^2) + eps) * w. out may be x. 0: all finite. */
  int (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  /* out = (x - mean) / sqrt(var + eps) * w + b; b may be null. out may be x. 0: all finite. */
  int (*layer_norm)(const float* x, const float* w, const float* b, float eps, int64_t n, float* out);
  /* Rotates pairs (x[i], x[i + pairs]) of each of `heads` heads, `head_dim` apart, in place. */
  void (*rope)(float* x, int64_t heads, int64_t head_dim, int64_t pairs, const float* cos, const float* sin);
  /* x += y. */
  void (*add)(float* x, const float* y, int64_t n);
  /* out = x * by. out may be x. */
  void (*scale)(const float* x, float by, int64_t n, float* out);
  /* out = act(g) * u; u may be null: out = act(g). out may be g or u. */
  void (*silu)(const float* g, const float* u, int64_t n, float* out);
  void (*gelu_tanh)(const float* g, const float* u, int64_t n, float* out);
  void (*gelu_erf)(const float* g, const float* u, int64_t n, float* out);
  /* out = exp(x), exactly 0 below -80. */
  void (*exp)(const float* x, int64_t n, float* out);
  /* The largest of scale * x, and the sum of exp(scale * x - that). n >= 1. */
  void (*max_sum_exp)(const float* x, int64_t n, float scale, float* max, float* sum);
  /* float to f16, ties to even, larger magnitudes to 65504. Returns how many were larger or no number. */
  int64_t (*to_f16)(const float* x, int64_t n, uint16_t* out);

  void (*attn_f16)(const pyrt_attn*);
  void (*attn_f32)(const pyrt_attn*);
  void (*attn_int8)(const pyrt_attn*);
  /* The same by bf16 tiles; null where the CPU has none. */
  void (*attn_tiles_f16)(const pyrt_attn*);
  void (*attn_tiles_f32)(const pyrt_attn*);
  void (*attn_tiles_int8)(const pyrt_attn*);
  /* Merges the partial result (m2, l2, o2 [d]) of a later split into (m, l, o [d]). Neither may be empty. */
  void (*attn_merge)(float* m, float* l, float* o, float m2, float l2, const float* o2, int64_t d);
} pyrt_kernels;

/* The table of an ISA by name, or null if this build or this machine lacks it. */
const pyrt_kernels* pyrt_kernel_table(const char* isa);

#ifdef __cplusplus
}
#endif
#endif
