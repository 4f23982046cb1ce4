// The Python module _gradwire_torch, which gradwire_torch loads (entry.cpp): importing it registers the backend.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/forked.hpp"
#include "gradwire/version.hpp"
#include "plugins/torch_c10d/backend.hpp"
#include "plugins/torch_c10d/ddp_names.hpp"
#include "plugins/torch_c10d/hook.hpp"
#include "plugins/torch_c10d/scatter.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

// Works with whichever smart pointer Python's object has, since the reference count is in the object itself.
template <class T>
c10::intrusive_ptr<T> shared(const py::handle& object) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(object.cast<T*>());
}

bool has(const py::module_& distributed, const char* function) {
  return py::hasattr(distributed, function) && distributed.attr(function)().cast<bool>();
}

BasePointer make_gloo(const char* prefix, const py::object& store, int rank, int size, const py::object& timeout) {
  const py::module_ distributed = py::module_::import("torch.distributed");
  return shared<Base>(distributed.attr("ProcessGroupGloo")(distributed.attr("PrefixStore")(prefix, store), rank, size,
                                                           py::arg("timeout") = timeout));
}

Inner make_inner(const py::object& store, int rank, int size, const py::object& timeout) {
  const py::module_ distributed = py::module_::import("torch.distributed");
  if (!has(distributed, "is_gloo_available")) {
    throw std::runtime_error("gradwire: this build of PyTorch has no Gloo, which the backend passes calls to");
  }
  Inner inner{.cpu = make_gloo("gradwire/passed", store, rank, size, timeout), .beside = {}, .cuda = {}};
  const bool gpus = py::module_::import("torch").attr("cuda").attr("is_available")().cast<bool>();
  if (gpus && has(distributed, "is_nccl_available")) {
    const py::object make = distributed.attr("ProcessGroupNCCL");
    const py::object options = make.attr("Options")();
    options.attr("_timeout") = timeout;
    inner.cuda = shared<Base>(make(distributed.attr("PrefixStore")("gradwire/nccl", store), rank, size, options));
  }
  return inner;
}

// The process that makes groups. A forked child waits for no group and reports nothing.
std::optional<Home>& home_of_groups() {
  static std::optional<Home> home;
  return home;
}

BasePointer create(const py::object& store, int rank, int size, const py::object& timeout) {
  static bool first = true;
  if (!home_of_groups() || home_of_groups()->is_elsewhere()) {
    home_of_groups().emplace();
  }
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout.cast<std::chrono::duration<double>>());
  Inner inner = make_inner(store, rank, size, timeout);
  const bool first_now = first;
  first = false;
  auto group = c10::make_intrusive<GradwireBackend>(
      shared<c10d::Store>(store), rank, size,
      GroupEngineOptions{.rank = rank, .world_size = size, .timeout = limit, .first = first_now}, std::move(inner));
  if (group->engine().has_thread()) {  // on all ranks or none
    group->set_beside(make_gloo("gradwire/beside", store, rank, size, timeout));
  }
  return group;
}

}  // namespace
}  // namespace gradwire::torch_c10d

PYBIND11_MODULE(_gradwire_torch, module) {
  namespace own = gradwire::torch_c10d;
  module.doc() = "Registers the torch.distributed backend \"gradwire\": gradients, small on the wire.";
  module.attr("__version__") = gradwire::kVersion;
  module.def("_create", &own::create);
  module.def("name_buckets", &own::name_buckets, py::arg("model"),
             "Names DDP's buckets by their parameters, so that rules of the policy match them. Call it once, after "
             "DistributedDataParallel; it is the model's communication hook.");
  own::add_hook_class(module);
  own::add_scatter_class(module);
  const py::module_ distributed = py::module_::import("torch.distributed");
  const py::object enlist = distributed.attr("Backend").attr("register_backend");
#if TORCH_VERSION_MAJOR >= 2
  enlist("gradwire", module.attr("_create"), py::arg("devices") = py::make_tuple("cpu", "cuda").cast<py::list>());
#else
  enlist("gradwire", module.attr("_create"));
#endif
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    own::close_hooks();
    own::close_scatters();
    if (!own::home_of_groups() || own::home_of_groups()->is_elsewhere()) {
      return;
    }
    own::wait_for_ending_groups();
    own::report();
  }));
}
