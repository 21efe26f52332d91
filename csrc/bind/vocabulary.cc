#include "base/elementary.h"
#include "bind/bind.h"
#include "kernels/registry.h"
#include "model/forward.h"
#include "model/logits.h"

namespace pyrt::bind {
namespace {

// Sampling needs no choice: every ISA gives the same bits.
const pyrt_kernels& kernels() { return best_kernels(); }

using Floats = Array<float>;

int64_t blocks_of(const Floats& logits, const Floats& block_max) {
  const int64_t blocks = (logits.size() + kLogitBlock - 1) / kLogitBlock;
  PYRT_CHECK(logits.size() > 0, "logits are empty");
  PYRT_CHECK(block_max.size() == blocks, "block_max has ", block_max.size(), " entries, but ", logits.size(), " logits have ",
             blocks, " blocks");
  return blocks;
}

py::tuple chosen(const Floats& logits, const std::vector<int32_t>& ids) {
  py::array_t<int32_t> out(py::ssize_t(ids.size()));
  py::array_t<float> values(py::ssize_t(ids.size()));
  for (size_t i = 0; i < ids.size(); ++i) {
    out.mutable_data()[i] = ids[i];
    values.mutable_data()[i] = logits.data()[ids[i]];
  }
  return py::make_tuple(out, values);
}

py::tuple py_top_k(const py::object& logits, const py::object& block_max, int64_t k) {
  const Floats x = same<float>(logits, "logits"), max = same<float>(block_max, "block_max");
  blocks_of(x, max);
  return chosen(x, top_k(x.data(), x.size(), max.data(), k));
}

py::tuple py_above(const py::object& logits, const py::object& block_max, float threshold) {
  const Floats x = same<float>(logits, "logits"), max = same<float>(block_max, "block_max");
  blocks_of(x, max);
  return chosen(x, above(x.data(), x.size(), max.data(), threshold));
}

void py_refresh(const py::object& logits, const py::object& block_max, const py::object& ids) {
  const Floats x = same<float>(logits, "logits");
  Floats max = same<float>(block_max, "block_max");
  const auto which = same<int32_t>(ids, "ids");
  blocks_of(x, max);
  for (py::ssize_t i = 0; i < which.size(); ++i)
    PYRT_CHECK(which.data()[i] >= 0 && which.data()[i] < x.size(), "id ", which.data()[i], " is not in 0..", x.size() - 1);
  refresh_block_max(x.data(), x.size(), max.mutable_data(), which.data(), which.size());
}

py::array_t<double> py_block_sums(const py::object& logits, float scale, float shift) {
  const Floats x = same<float>(logits, "logits");
  py::array_t<double> out((x.size() + kLogitBlock - 1) / kLogitBlock);
  block_sums(kernels(), x.data(), x.size(), scale, shift, out.mutable_data());
  return out;
}

py::array_t<float> py_exp(const Floats& x) {
  py::array_t<float> out(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim()));
  kernels().exp(x.data(), x.size(), out.mutable_data());
  return out;
}

py::array_t<double> py_log(const Array<double>& x) {
  py::array_t<double> out(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim()));
  for (py::ssize_t i = 0; i < x.size(); ++i) {
    const double v = x.data()[i];
    out.mutable_data()[i] = v > 0 ? log_f64(v) : v == 0 ? -std::numeric_limits<double>::infinity() : v - v + std::numeric_limits<double>::quiet_NaN();
  }
  return out;
}

}  // namespace

void bind_vocabulary(py::module_& m) {
  m.def("exp", py_exp, py::arg("x"), "e^x, the same bits on every machine; 0 below -80, x above 88 counts as 88.");
  m.def("log", py_log, py::arg("x"), "Natural logarithm in float64, the same bits on every machine.");
  m.def("top_k", py_top_k, py::arg("logits"), py::arg("block_max"), py::arg("k"),
        "(ids, logits) of the k largest, largest first, ties by id.");
  m.def("above", py_above, py::arg("logits"), py::arg("block_max"), py::arg("threshold"),
        "(ids, logits) of all that reach the threshold, largest first, ties by id.");
  m.def("refresh_block_max", py_refresh, py::arg("logits"), py::arg("block_max"), py::arg("ids"),
        "Recomputes, in place, the maxima of the blocks that hold these ids.");
  m.def("block_sums", py_block_sums, py::arg("logits"), py::arg("scale"), py::arg("shift"),
        "Sums of exp(scale * logit - shift) a block of 256, float64.");
  m.def("logsumexp", [](const py::object& logits, float scale) {
    const Floats x = same<float>(logits, "logits");
    PYRT_CHECK(x.size() > 0, "logits are empty");
    return log_sum_exp(kernels(), x.data(), x.size(), scale);
  }, py::arg("logits"), py::arg("scale") = 1.0f, "log of the sum of exp(scale * logit), per 256 and merged in order.");
}

}  // namespace pyrt::bind
