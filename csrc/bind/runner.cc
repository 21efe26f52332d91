#include <atomic>
#include <optional>

#include "base/topology.h"
#include "bind/bind.h"
#include "kernels/registry.h"
#include "model/forward.h"

namespace pyrt::bind {
namespace {

struct CancelFlag {
  std::atomic<bool> value{false};
};

struct StepResult {
  py::array_t<float> logits, block_max;
  py::array_t<double> logsumexp;
  int64_t saturated;
};

struct Interrupted {};  // a signal handler raised; Python's error is set

// Lets Python run its signal handlers, on the thread that called step.
void poll_signals(void*) {
  PyGILState_STATE state;
  take_gil([&] { state = PyGILState_Ensure(); });
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  if (raised) throw Interrupted{};
}

Batch batch_of(const Array<int32_t>& tokens, const Array<int32_t>& positions, const Array<int32_t>& sequences,
               const Array<uint8_t>& want, const std::vector<Array<int32_t>>& tables) {
  Batch b;
  b.n_rows = tokens.size();
  PYRT_CHECK(positions.size() == b.n_rows && sequences.size() == b.n_rows && want.size() == b.n_rows,
             "tokens, positions, sequences and want differ in length");
  b.tokens = tokens.data();
  b.positions = positions.data();
  b.sequences = sequences.data();
  b.want = want.data();
  for (const auto& t : tables) {
    PYRT_CHECK(t.ndim() == 2, "a page table has ", t.ndim(), " dimensions, not [sequences, pages]");
    PYRT_CHECK(b.tables.empty() || t.shape(0) == b.n_sequences, "page tables differ in their number of sequences");
    b.n_sequences = t.shape(0);
    b.tables.push_back({t.data(), t.shape(1)});
  }
  return b;
}

StepResult step(Runner& runner, const py::object& tokens, const py::object& positions, const py::object& sequences,
                const py::object& want, const std::vector<py::object>& tables, const CancelFlag* flag,
                std::optional<double> deadline, int64_t prompt_rows) {
  const auto t = same<int32_t>(tokens, "tokens"), p = same<int32_t>(positions, "positions"),
             s = same<int32_t>(sequences, "sequences");
  const auto w = same<uint8_t>(want, "want");
  std::vector<Array<int32_t>> pages;
  for (const py::object& table : tables) pages.push_back(same<int32_t>(table, "a page table"));
  Batch batch = batch_of(t, p, s, w, pages);
  batch.n_prompt = prompt_rows;
  const int64_t wanted = batch.n_wanted(), n = runner.model().config.n_vocab;
  StepResult result{py::array_t<float>({wanted, n}), py::array_t<float>({wanted, (n + kLogitBlock - 1) / kLogitBlock}),
                    py::array_t<double>(wanted), 0};
  const Logits out{result.logits.mutable_data(), result.block_max.mutable_data(), result.logsumexp.mutable_data()};
  StepControl control;
  if (flag) control.cancel = &flag->value;
  control.deadline = deadline.value_or(0);
  control.poll = poll_signals;
  try {
    const WithoutGil without_gil;
    runner.step(batch, control, out);
  } catch (const Interrupted&) {
    throw py::error_already_set();
  }
  result.saturated = runner.saturated();
  return result;
}

py::list groups_of(const KvCache& cache) {
  py::list all;
  for (const KvCache::Group& g : cache.groups()) {
    py::dict d;
    d["window"] = g.window;
    d["layers"] = g.n_layers;
    d["page_bytes"] = g.page_bytes;
    all.append(d);
  }
  return all;
}

}  // namespace

void bind_runner(py::module_& m) {
  py::class_<CancelFlag>(m, "CancelFlag", "Ends the step that runs with it, from any thread.")
      .def(py::init<>())
      .def("set", [](CancelFlag& f) { f.value = true; })
      .def("clear", [](CancelFlag& f) { f.value = false; })
      .def("is_set", [](const CancelFlag& f) { return f.value.load(); });

  py::class_<KvCache, std::shared_ptr<KvCache>>(m, "KvCache", "Pages of 32 tokens of keys and values.")
      .def(py::init([](const Model& model, const std::string& kv_dtype) {
             const Config& c = model.config;
             return std::make_shared<KvCache>(c.layer_window, c.n_kv_heads, c.head_dim, kv_dtype);
           }),
           py::arg("model"), py::arg("kv_dtype") = "f16")
      .def_property_readonly("groups", groups_of, "A dict (window, layers, page_bytes) for each distinct window.")
      .def("resize", &KvCache::resize, py::arg("group"), py::arg("n_pages"))
      .def("n_pages", [](const KvCache& c, size_t group) { return c.groups().at(group).pages.size(); }, py::arg("group"))
      .def_property_readonly_static("PAGE_TOKENS", [](const py::object&) { return kPageTokens; });

  py::class_<StepResult>(m, "StepResult", "Results of the rows that wanted logits, in order.")
      .def_readonly("logits", &StepResult::logits, "float32 [rows, n_vocab]")
      .def_readonly("block_max", &StepResult::block_max, "float32 [rows, ceil(n_vocab / 256)]")
      .def_readonly("logsumexp", &StepResult::logsumexp, "float64 [rows]")
      .def_readonly("saturated", &StepResult::saturated, "keys and values beyond f16 in this step");

  py::class_<Runner>(m, "Runner", "Runs steps of one model over one cache with its own threads; one step at a time.")
      .def(py::init([](std::shared_ptr<Model> model, std::shared_ptr<KvCache> cache, const std::string& isa, int threads, bool fast) {
             return std::make_unique<Runner>(std::move(model), std::move(cache), choose_kernels(isa),
                                             threads > 0 ? threads : default_threads(), fast);
           }),
           py::arg("model"), py::arg("cache"), py::arg("isa") = "", py::arg("threads") = 0, py::arg("fast") = false)
      .def("step", step, py::arg("tokens"), py::arg("positions"), py::arg("sequences"), py::arg("want"), py::arg("tables"),
           py::arg("flag") = nullptr, py::arg("deadline") = py::none(), py::arg("prompt_rows") = 0)
      .def_property_readonly("isa", [](const Runner& r) { return std::string(r.kernels().isa); })
      .def_property_readonly("threads", [](Runner& r) { return r.pool().size(); })
      .def_property_readonly("numerics", [](const Runner& r) { return r.fast() ? "fast" : "exact"; });
}

}  // namespace pyrt::bind
