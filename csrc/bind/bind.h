// What the binding files share.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

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

// Python ends a thread that asks for its lock after the interpreter has ended by unwinding the thread's stack, which
// aborts the process at the first destructor or catch. Here such a thread waits for the process to end, as in Python 3.14.
template <class Take>
void take_gil(Take take) noexcept {
  try {
    take();
  } catch (...) {
    for (;;) pause();
  }
}

// Other Python threads run while it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

void bind_machine(py::module_& m);
void bind_model(py::module_& m);
void bind_runner(py::module_& m);
void bind_text(py::module_& m);
void bind_vocabulary(py::module_& m);

}  // namespace pyrt::bind
