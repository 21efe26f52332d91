// Where a vector is one register: parts are whole vectors.
#pragma once

namespace {

using P = F;
constexpr int kParts = 1;
inline P p_set(float x) { return f_set(x); }
inline P p_add(P a, P b) { return f_add(a, b); }
inline P p_mul(P a, P b) { return f_mul(a, b); }
inline P p_fma(P a, P b, P c) { return f_fma(a, b, c); }
inline P p_load(const float* p) { return f_load(p); }
inline P p_load_f16(const void* p) { return f_load_f16(p); }
inline P p_load_i8(const void* p) { return f_load_i8(p); }
inline void p_store(float* p, P a) { f_store(p, a); }

}  // namespace
