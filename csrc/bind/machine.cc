#include "base/bandwidth.h"
#include "base/cpu.h"
#include "base/topology.h"
#include "bind/bind.h"
#include "kernels/registry.h"

namespace pyrt::bind {
namespace {

py::dict cpu() {
  const Topology t = read_topology(affinity_cpus());
  py::list isas;
  py::dict why;
  for (const IsaChoice& c : isa_choices()) {
    if (c.table) isas.append(std::string(c.name));
    why[py::str(std::string(c.name))] = c.why;
  }
  py::dict d;
  d["isas"] = isas;
  d["isa"] = py::none();
  d["isa_problem"] = py::none();
  try {
    d["isa"] = std::string(choose_kernels("").isa);
  } catch (const Error& e) {  // of PYRT_ISA
    d["isa_problem"] = e.what();
  }
  d["why"] = why;
  d["threads"] = py::none();
  d["threads_problem"] = py::none();
  try {
    d["threads"] = default_threads();
  } catch (const Error& e) {  // of PYRT_THREADS
    d["threads_problem"] = e.what();
  }
  d["affinity"] = t.affinity;
  d["physical_cores"] = t.physical_cores;
  d["quota"] = t.quota > 0 ? py::object(py::float_(t.quota)) : py::object(py::none());
  d["model_name"] = t.model_name;
  d["l1d"] = t.l1d;
  d["l2"] = t.l2;
  d["l3"] = t.l3;
  return d;
}

double bandwidth(double megabytes, int threads, double seconds) {
  PYRT_CHECK(megabytes >= 1 && megabytes <= 1 << 16, "megabytes is ", megabytes, ", not in 1..65536");
  ThreadPool pool(threads > 0 ? threads : default_threads());
  const WithoutGil without_gil;
  return read_bandwidth(pool, int64_t(megabytes * 1e6), seconds) / 1e9;
}

}  // namespace

void bind_machine(py::module_& m) {
  m.def("cpu", cpu, "What this machine offers and what was chosen, as a dict.");
  m.def("read_bandwidth", bandwidth, py::arg("megabytes"), py::arg("threads") = 0, py::arg("seconds") = 0.3,
        "GB/s that `threads` threads read from a buffer of that size.");
}

}  // namespace pyrt::bind
