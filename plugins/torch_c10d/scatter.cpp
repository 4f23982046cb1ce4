#include "plugins/torch_c10d/scatter.hpp"

#include <ATen/core/grad_mode.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/torch_c10d/device_hook.hpp"
#include "plugins/torch_c10d/group_store.hpp"
#include "plugins/torch_c10d/scatter_engine.hpp"
#include "plugins/torch_c10d/tensor_dtype.hpp"
#include "policy/stage.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

struct Operation {
  Reduction reduction = Reduction::sum;
  double factor = 1;  // of each rank's values
};

// FSDP sums, averages, or scales by the factor that a model was given (PREMUL_SUM).
Operation operation_of(const py::object& op) {
  const py::object known = py::module_::import("torch.distributed").attr("ReduceOp");
  if (op.equal(known.attr("SUM"))) {
    return {};
  }
  if (op.equal(known.attr("AVG"))) {
    return {.reduction = Reduction::mean};
  }
  if (py::hasattr(known, "PREMUL_SUM") && op.equal(known.attr("PREMUL_SUM")) && py::hasattr(op, "__getstate__")) {
    const py::object state = op.attr("__getstate__")();  // the operation and its factor
    return {.factor = py::float_(state.attr("__getitem__")(1)).cast<double>()};
  }
  throw py::value_error(std::string(kScatterName) + ": " + py::str(op).cast<std::string>() +
                        " is neither a sum, nor an average, nor a scaled sum");
}

CodecSpec codec_of(const std::string& name) {
  const CodecSpec codec = CodecSpec::parse(name);
  if (policy::wants_feedback(codec)) {
    throw py::value_error(std::string(kScatterName) + ": " + name +
                          " needs error feedback, for which residuals would be as large as all gradients of the model "
                          "before they are sharded; name a codec of 8 bits or more, such as int8 or fp8");
  }
  return codec;
}

void check(const at::Tensor& output, const at::Tensor& input, int ranks) {
  const auto type_of = [](const at::Tensor& tensor) {
    return py::str(py::cast(tensor).attr("dtype")).cast<std::string>() + " on " + tensor.device().str();
  };
  if (!dtype_of(input) || input.scalar_type() != output.scalar_type() || input.device() != output.device() ||
      !input.is_contiguous() || !output.is_contiguous()) {
    throw py::type_error(std::string(kScatterName) + ": input of " + type_of(input) + ", output of " + type_of(output) +
                         "; both must be contiguous, of one dtype that is torch.float32, float16, bfloat16 or float64, "
                         "and on one device");
  }
  if (input.numel() != output.numel() * ranks) {
    throw py::value_error(std::string(kScatterName) + ": the input has " + std::to_string(input.numel()) +
                          " elements, the output " + std::to_string(output.numel()) + ", which are not a " +
                          std::to_string(ranks) + "th of them, one for each rank");
  }
}

class ReduceScatter;
std::set<ReduceScatter*>& live_scatters() {
  static std::set<ReduceScatter*> live;  // guarded by the GIL
  return live;
}

class ReduceScatter {
 public:
  ReduceScatter(const std::string& codec, const std::optional<std::chrono::duration<double>>& timeout)
      : codec_(codec_of(codec)), timeout_(timeout_of(timeout, kScatterName)) {
    live_scatters().insert(this);
  }
  ~ReduceScatter() {
    live_scatters().erase(this);
    close();
  }
  /// Gives up the engines. A call that is under way on another thread keeps its own until it returns.
  void close() {
    std::vector<std::shared_ptr<ScatterEngine>> engines;
    for (Engine& each : engines_) {  // the groups, objects of Python, go later
      engines.push_back(std::move(each.engine));
    }
    const py::gil_scoped_release others_may_need_it;  // an engine may wait for a device
    engines.clear();
  }
  ReduceScatter(const ReduceScatter&) = delete;
  ReduceScatter& operator=(const ReduceScatter&) = delete;

  static py::object allocate(const py::object& size, const py::object& dtype, const py::object& device) {
    return py::module_::import("torch").attr("empty")(size, py::arg("dtype") = dtype, py::arg("device") = device);
  }

  py::object operator()(const at::Tensor& output, const at::Tensor& input, const py::object& group,
                        const py::object& op, bool async_op) {
    if (async_op) {
      throw py::value_error(std::string(kScatterName) +
                            ": async_op is not supported; FSDP calls it on a stream of its own");
    }
    Operation operation = operation_of(op);
    const int ranks = group.attr("size")().cast<int>();
    check(output, input, ranks);
    const bool on_host = input.device().is_cpu();
    if (on_host && operation.factor != 1) {
      const at::NoGradGuard no_grad;
      input.mul_(operation.factor);  // FSDP's own copy of the gradients
      operation.factor = 1;
    }
    const DType dtype = *dtype_of(input);
    ScatterCall call{.input = {input.data_ptr(), static_cast<std::uint64_t>(input.numel()), dtype},
                     .output = {output.data_ptr(), static_cast<std::uint64_t>(output.numel()), dtype},
                     .reduction = operation.reduction,
                     .factor = operation.factor};
    if (!on_host) {
      const py::object stream = py::module_::import("torch.cuda").attr("current_stream")(input.device().index());
      call.stream = reinterpret_cast<void*>(stream.attr("cuda_stream").cast<std::uintptr_t>());
    }
    std::shared_ptr<ScatterEngine> found = engine_of(group, ranks, input.device());
    {
      const py::gil_scoped_release others_may_need_it;
      const std::shared_ptr<ScatterEngine> engine = std::move(found);  // close() may leave this the last one
      engine->reduce_scatter(call);
    }
    return py::none();
  }

 private:
  struct Engine {
    py::object group;
    at::Device device;
    std::shared_ptr<ScatterEngine> engine;
  };

  // Its ranks come here alike, at their first call in the group.
  std::shared_ptr<ScatterEngine> engine_of(const py::object& group, int ranks, const at::Device& device) {
    for (const Engine& known : engines_) {
      if (known.group.is(group) && known.device == device && known.engine != nullptr) {
        return known.engine;
      }
    }
    const int rank = group.attr("rank")().cast<int>();
    const ScatterOptions options{.rank = rank,
                                 .world_size = ranks,
                                 .codec = codec_,
                                 .timeout = timeout_,
                                 .store = store_of_group(group, rank, ranks, "gradwire_scatters"),
                                 .device = device.is_cpu() ? 0 : device.index()};
    std::shared_ptr<ScatterEngine> made;
    {
      const py::gil_scoped_release others_may_need_it;
      made = device.is_cpu() ? make_host_scatter_engine(options) : load_device_scatter_engine(options, device.str());
    }
    engines_.push_back({group, device, std::move(made)});
    return engines_.back().engine;
  }

  CodecSpec codec_;
  std::chrono::milliseconds timeout_;
  std::vector<Engine> engines_;
};

}  // namespace

void add_scatter_class(py::module_& module) {
  py::class_<ReduceScatter>(module, "ReduceScatter",
                            "A custom reduce-scatter for FSDP2: model.set_custom_reduce_scatter(ReduceScatter()).")
      .def(py::init<const std::string&, const std::optional<std::chrono::duration<double>>&>(), py::kw_only(),
           py::arg("codec") = "int8", py::arg("timeout") = py::none(),
           "codec: of 8 bits or more. timeout: for any single wait, 30 minutes by default.")
      .def_static("allocate", &ReduceScatter::allocate, py::arg("size"), py::kw_only(), py::arg("dtype"),
                  py::arg("device"), "A tensor for FSDP to use in calls.")
      .def("__call__", &ReduceScatter::operator(), py::arg("output_tensor"), py::arg("input_tensor"), py::arg("group"),
           py::arg("op"), py::arg("async_op") = false);
}

void close_scatters() {
  const std::set<ReduceScatter*> live = live_scatters();
  for (ReduceScatter* scatter : live) {
    scatter->close();
  }
}

}  // namespace gradwire::torch_c10d
