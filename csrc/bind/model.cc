#include <span>
#include <tuple>
#include <vector>

#include "bind/bind.h"
#include "model/weights.h"
#include "nn/rope.h"

namespace pyrt::bind {
namespace {

template <class T>
T read_knob(const py::handle& value, const char*) {
  return value.cast<T>();
}

template <class E>
  requires std::is_enum_v<E>
E read_knob(const py::handle& value, const char* name) {
  const auto given = value.cast<std::string>();
  for (size_t i = 0; i < std::size(EnumNames<E>::names); ++i)
    if (EnumNames<E>::names[i] == given) return E(i);
  throw Error(text("knob ", name, " is ", given, ", which is none of its values"));
}

template <class T>
py::object knob_object(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return py::str(std::string(EnumNames<T>::names[size_t(value)]));
  else
    return py::cast(value);
}

Config config_of(const py::dict& d) {
  using namespace pyrt::knobs;
  Config c;
  size_t known = 0;
#define KNOB(type, name, what)                                                       \
  PYRT_CHECK(d.contains(#name), "knob " #name " is missing: " what);                 \
  try {                                                                              \
    c.name = read_knob<type>(d[#name], #name);                                       \
  } catch (const py::cast_error&) {                                                  \
    throw Error(text("knob " #name " is ", std::string(py::repr(d[#name])), ", not of type " #type)); \
  }                                                                                  \
  ++known;
#include "model/config.def"
#undef KNOB
  if (d.size() != known)
    for (auto item : d) {
      const auto key = item.first.cast<std::string>();
      bool found = false;
#define KNOB(type, name, what) found |= key == #name;
#include "model/config.def"
#undef KNOB
      PYRT_CHECK(found, "knob ", key, " is unknown");
    }
  return c;
}

py::dict knobs_of(const Model& m) {
  py::dict d;
#define KNOB(type, name, what) d[#name] = knob_object(m.config.name);
#include "model/config.def"
#undef KNOB
  return d;
}

// The bytes of a C-contiguous buffer.
std::span<const uint8_t> bytes_of(const std::string& name, const py::buffer_info& info) {
  py::ssize_t stride = info.itemsize;
  for (py::ssize_t i = info.ndim; i-- > 0; stride *= info.shape[size_t(i)])
    PYRT_CHECK(info.strides[size_t(i)] == stride || info.shape[size_t(i)] <= 1, "tensor ", name, " is not C-contiguous");
  return {static_cast<const uint8_t*>(info.ptr), size_t(info.size * info.itemsize)};
}

using Tensor = std::tuple<std::string, std::string, int64_t, int64_t, py::buffer, std::string, bool>;

void add_all(ModelBuilder& b, const std::vector<Tensor>& tensors) {
  std::vector<py::buffer_info> buffers;
  for (const Tensor& tensor : tensors) buffers.push_back(std::get<py::buffer>(tensor).request());
  const WithoutGil without_gil;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, format, rows, cols, data, store, mapped] = tensors[i];
    PYRT_CHECK(rows > 0 && cols > 0, "tensor ", name, " is [", rows, ", ", cols, "]");
    b.add(name, format, rows, cols, bytes_of(name, buffers[i]), store, mapped);
  }
}

void add(ModelBuilder& b, const std::string& name, const std::string& format, int64_t rows, int64_t cols, const py::buffer& data,
         const std::string& store) {
  add_all(b, {{name, format, rows, cols, data, store, false}});
}

py::list tensors_of(Model& m) {
  py::list all;
  for (const auto& [name, slot] : ModelBuilder::slots_of(m)) {
    if (slot.matrix && slot.matrix->rows)
      all.append(py::make_tuple(name, std::string(layout_info(slot.matrix->layout).name), slot.rows, slot.cols, slot.matrix->bytes()));
    if (slot.vector && !slot.vector->empty()) all.append(py::make_tuple(name, "F32", 1, slot.cols, slot.cols * 4));
  }
  return all;
}

py::array_t<float> row_of(Model& m, const std::string& name, int64_t row) {
  const auto slots = ModelBuilder::slots_of(m);
  const auto found = slots.find(name);
  PYRT_CHECK(found != slots.end() && found->second.matrix && found->second.matrix->rows, "the model has no matrix ", name);
  const Slot& slot = found->second;
  PYRT_CHECK(row >= 0 && row < slot.rows, "row ", row, " of ", name, ", which has ", slot.rows);
  py::array_t<float> out(slot.cols);
  slot.matrix->decode_row(ModelBuilder::packed_row(m.config, slot, row), out.mutable_data());
  return out;
}

py::array_t<float> dequantize(const std::string& format, const Array<uint8_t>& data, int64_t n) {
  const Format* f = find_format(format);
  PYRT_CHECK(f, "type ", format, " is unknown");
  PYRT_CHECK(n >= 0 && n % f->block == 0, n, " values are no whole number of blocks of ", f->block);
  PYRT_CHECK(data.size() == f->row_bytes(n), data.size(), " bytes, but ", n, " values of ", format, " take ", f->row_bytes(n));
  py::array_t<float> out(n);
  f->decode(data.data(), n, out.mutable_data());
  return out;
}

py::array_t<float> inv_freq(double theta, int64_t dim) {
  PYRT_CHECK(theta >= 1 && theta < 1e300, "rope theta is ", theta);
  PYRT_CHECK(dim >= 2 && dim % 2 == 0 && dim <= 4096, "rope dimension is ", dim);
  py::array_t<float> out(dim / 2);
  rope_inv_freq(theta, dim, out.mutable_data());
  return out;
}

}  // namespace

void bind_model(py::module_& m) {
  py::class_<Model, std::shared_ptr<Model>>(m, "Model", "Knobs and packed weights; immutable.")
      .def_property_readonly("knobs", knobs_of)
      .def_property_readonly("packed_bytes", [](const Model& model) { return model.arena.allocated(); })
      .def_property_readonly("tensors", tensors_of, "(name, layout, rows, cols, bytes) of each.")
      .def("row", row_of, py::arg("name"), py::arg("row"), "A row of a matrix, decoded from its packed form, float32 [cols].");
  py::class_<ModelBuilder>(m, "ModelBuilder", "Takes the tensors of a model one by one and packs them.")
      .def(py::init([](const py::dict& knobs, int threads) {
             return std::make_unique<ModelBuilder>(config_of(knobs), std::max(1, threads));
           }),
           py::arg("knobs"), py::arg("threads") = 1)
      .def("add", add, py::arg("name"), py::arg("format"), py::arg("rows"), py::arg("cols"), py::arg("data"), py::arg("store") = "")
      .def("add_all", add_all, py::arg("tensors"),
           "Tuples as for add and whether the data are a map of a file, all while other Python threads run.")
      .def("set_threads", [](ModelBuilder& b, int threads) { b.set_threads(std::max(1, threads)); }, py::arg("threads"),
           "That pack from now on; any thread may say so.")
      .def("cancel", &ModelBuilder::cancel, "What another thread adds ends in Cancelled.")
      .def_property_readonly("done", &ModelBuilder::done, "Bytes of the data that are packed.")
      .def("build", [](ModelBuilder& b) { return b.build(); });
  m.def("dequantize", dequantize, py::arg("format"), py::arg("data"), py::arg("n"), "Decodes n values of a stored type, float32 [n].");
  m.def("rope_inv_freq", inv_freq, py::arg("theta"), py::arg("dim"), "1 / theta^(2i / dim), float32 [dim / 2].");
}

}  // namespace pyrt::bind
