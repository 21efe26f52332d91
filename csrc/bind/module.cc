#include "base/thread_pool.h"
#include "bind/bind.h"

namespace pyrt::bind {

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled core of pyrt: packed weights, kernels, cache and forward pass.";
  m.attr("__version__") = PYRT_VERSION;
  static py::exception<Cancelled> cancelled(m, "Cancelled");
  py::register_exception<Error>(m, "Error", PyExc_ValueError);
  py::register_exception<NonFiniteError>(m, "NonFiniteError", PyExc_FloatingPointError);
  py::register_exception_translator([](std::exception_ptr e) {
    try {
      if (e) std::rethrow_exception(e);
    } catch (const Cancelled& c) {
      py::set_error(cancelled, c.what());
    }
  });
  bind_machine(m);
  bind_model(m);
  bind_runner(m);
  bind_text(m);
  bind_vocabulary(m);
}

}  // namespace pyrt::bind
