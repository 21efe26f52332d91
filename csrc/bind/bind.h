// What the binding files share.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/check.h"

namespace pyrt::bind {

namespace py = pybind11;

// A C-contiguous array of T, as it is given: no copy, no conversion.
template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
Array<T> same(const py::object& o, const char* name) {
  PYRT_CHECK(Array<T>::check_(o), name, " must be a C-contiguous array of ", std::string(py::str(py::dtype::of<T>())));
  return o.cast<Array<T>>();
}

void bind_machine(py::module_& m);
void bind_model(py::module_& m);
void bind_runner(py::module_& m);
void bind_text(py::module_& m);
void bind_vocabulary(py::module_& m);

}  // namespace pyrt::bind
