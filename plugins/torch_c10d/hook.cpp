#include "plugins/torch_c10d/hook.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/current_error.hpp"
#include "plugins/torch_c10d/ddp_model.hpp"
#include "plugins/torch_c10d/device_hook.hpp"
#include "plugins/torch_c10d/group_store.hpp"
#include "plugins/torch_c10d/hook_engine.hpp"
#include "plugins/torch_c10d/tensor_dtype.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

constexpr const char* kName = "gradwire_torch.Hook";

// Engines whose threads may use the interpreter. Guarded by its lock.
std::vector<std::weak_ptr<HookEngine>>& live_engines() {
  static auto* const engines = new std::vector<std::weak_ptr<HookEngine>>;
  return *engines;
}

Policy policy_of(const py::object& file, const std::optional<std::string>& codec) {
  if (!file.is_none() && codec) {
    throw py::value_error(std::string(kName) + ": policy and codec are both given; a policy names its codecs itself");
  }
  if (!file.is_none()) {
    return Policy::load(py::module_::import("os").attr("fspath")(file).cast<std::string>());
  }
  if (codec) {
    Policy policy = *codec == "auto" ? Policy::automatic() : Policy::uniform(CodecSpec::parse(*codec));
    policy.source = "codec=" + *codec;
    return policy;
  }
  return {};
}

// A future for one bucket, which any thread may complete.
class BucketFuture {
 public:
  BucketFuture(at::Tensor buffer, const at::Device& device)
      : future_(make(device), Release()), buffer_(std::move(buffer)) {
    result = future_->attr("then")(py::cpp_function([outcome = outcome_, kept = buffer_](const py::object&) {
      if (*outcome) {
        std::rethrow_exception(*outcome);
      }
      return kept;
    }));
  }

  py::object result;  // for DDP: the bucket's buffer, or the error

  [[nodiscard]] std::function<void(std::exception_ptr)> completion() const {
    return [future = future_, outcome = outcome_, buffer = buffer_](std::exception_ptr error) {
      if (Py_IsInitialized() == 0) {
        return;
      }
      const py::gil_scoped_acquire interpreter;
      try {
        *outcome = std::move(error);
        // Runs callbacks, whose errors are kept in their futures. A future of a device records events for the devices
        // of its value alone, so the value is the bucket: whoever goes on with it waits for the sum.
        future->attr("set_result")(buffer);
      } catch (py::error_already_set& problem) {
        problem.discard_as_unraisable(kName);
      }
    };
  }

 private:
  struct Release {
    void operator()(py::object* object) const {
      if (Py_IsInitialized() != 0) {
        const py::gil_scoped_acquire interpreter;
        delete object;
      }
    }
  };
  static py::object* make(const at::Device& device) {
    const py::object future = py::module_::import("torch.futures").attr("Future");
    if (device.is_cpu()) {
      return new py::object(future());
    }
    py::list devices;  // the future then records the device's current stream when it is completed
    devices.append(py::module_::import("torch").attr("device")(device.str()));
    return new py::object(future(py::arg("devices") = devices));
  }

  std::shared_ptr<py::object> future_;
  at::Tensor buffer_;
  std::shared_ptr<std::exception_ptr> outcome_ = std::make_shared<std::exception_ptr>();
};

// Lets other threads use the interpreter during a call that may wait for them.
template <typename Call>
auto without_interpreter(Call&& call) {
  const py::gil_scoped_release others_may_need_it;
  return call();
}

class Hook {
 public:
  Hook(DdpModel model, const std::function<HookOptions()>& choose)
      : model_(std::move(model)),
        rank_(model_.group().attr("rank")().cast<int>()),
        world_size_(model_.group().attr("size")().cast<int>()) {
    const transport::Rendezvous store = store_of_group(model_.group(), rank_, world_size_, "gradwire_hooks");
    try {
      HookOptions options = choose();
      options.rank = rank_;
      options.world_size = world_size_;
      options.parameters = model_.parameters();
      options.store = store;
      options.device = model_.device().index();
      engine_ = model_.device().is_cpu() ? make_host_hook_engine(std::move(options))
                                         : load_device_hook_engine(options, model_.device().str());
    } catch (...) {
      tell_of_failure(store, rank_, current_error().what());
      throw;
    }
    std::erase_if(live_engines(), [](const auto& engine) { return engine.expired(); });
    live_engines().push_back(engine_);
  }
  ~Hook() {
    const py::gil_scoped_release others_may_need_it;  // the engine's thread, which this joins
    engine_.reset();
  }
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

  py::object operator()(const py::object& /*state*/, const py::object& given) {
    try {
      return reduce(DdpBucket(given));
    } catch (...) {
      engine_->abort(current_error().what());
      throw;
    }
  }

  py::object statistics() {
    const std::string text = without_interpreter([&] { return engine_->statistics(); });
    py::dict all = text.empty() ? py::dict() : py::module_::import("json").attr("loads")(text).cast<py::dict>();
    if (!text.empty()) {
      all["residual_bytes"] = without_interpreter([&] { return engine_->residual_bytes(); });
    }
    return all;
  }

  std::string explain() {
    return without_interpreter([&] { return engine_->explain(); });
  }

  py::dict state_dict() {
    const std::string state = without_interpreter([&] { return engine_->save(); });
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
    std::copy(state.begin(), state.end(), static_cast<char*>(bytes.data_ptr()));
    py::dict all;
    all["rank"] = rank_;
    all["world_size"] = world_size_;
    all["step"] = without_interpreter([&] { return engine_->step(); });
    all["state"] = std::move(bytes);
    return all;
  }

  void load_state_dict(const py::object& given) {
    py::list all;
    if (py::isinstance<py::dict>(given)) {
      all.append(given);
    } else {
      all = py::list(given);
    }
    std::vector<std::string> states;
    for (const py::handle one : all) {
      const auto bytes = one.attr("__getitem__")("state").cast<at::Tensor>().to(at::kCPU, at::kByte).contiguous();
      states.emplace_back(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel()));
    }
    without_interpreter([&] { engine_->load(states); });
  }

  void set_loss_scale(double scale) {
    without_interpreter([&] { engine_->set_loss_scale(scale); });
  }

 private:
  py::object reduce(const DdpBucket& bucket) {
    HookBucket ours{.first = bucket.first, .last = bucket.last};
    if (!bucket.dense()) {
      ours.done = [](const std::exception_ptr&) {};
      without_interpreter([&] { engine_->post(std::move(ours)); });
      return sum_sparse(bucket.buffer);
    }
    ours.gradients = gradients_of(bucket);
    if (!model_.device().is_cpu()) {
      const py::object stream = py::module_::import("torch.cuda").attr("current_stream")(model_.device().index());
      ours.stream = reinterpret_cast<void*>(stream.attr("cuda_stream").cast<std::uintptr_t>());
    }
    const BucketFuture future(bucket.buffer, model_.device());
    ours.done = future.completion();
    without_interpreter([&] { engine_->post(std::move(ours)); });
    return future.result;
  }

  [[nodiscard]] std::vector<HookGradient> gradients_of(const DdpBucket& bucket) const {
    const at::Tensor& buffer = bucket.buffer;
    const std::optional<DType> dtype = dtype_of(buffer);
    if (!dtype || !buffer.is_contiguous() || buffer.device() != model_.device()) {
      throw py::type_error(
          std::string(kName) + ": a bucket of " + py::str(py::cast(buffer).attr("dtype")).cast<std::string>() + " on " +
          buffer.device().str() + "; gradients must be torch.float32, float16, bfloat16 or float64 on " +
          model_.device().str() + ", where the parameters are");
    }
    std::vector<HookGradient> gradients;
    auto* at = static_cast<char*>(buffer.data_ptr());
    std::int64_t left = buffer.numel();
    for (const at::Tensor& parameter : bucket.parameters) {
      const std::optional<std::size_t> number = model_.find(parameter);
      left -= parameter.numel();
      if (!number || left < 0) {
        throw py::value_error(std::string(kName) + ": a bucket holds a parameter of shape " +
                              py::str(py::cast(parameter).attr("shape")).cast<std::string>() +
                              " that is not the model's; make the hook of the model that it is registered for");
      }
      const auto count = static_cast<std::uint64_t>(parameter.numel());
      gradients.push_back({.parameter = *number, .view = {at, count, *dtype}});
      at += count * buffer.element_size();
    }
    return gradients;
  }

  // No codec is for sparse gradients, so they take the group's own way.
  py::object sum_sparse(const at::Tensor& buffer) {
    const at::NoGradGuard no_grad;
    const py::object mean = py::cast(buffer.div(world_size_));
    const py::object work =
        py::module_::import("torch.distributed")
            .attr("all_reduce")(mean, py::arg("group") = model_.group(), py::arg("async_op") = true);
    return work.attr("get_future")().attr("then")(
        py::cpp_function([](const py::object& future) { return future.attr("value")().attr("__getitem__")(0); }));
  }

  DdpModel model_;
  int rank_;
  int world_size_;
  std::shared_ptr<HookEngine> engine_;
};

// DDP asks a hook for its name and its parameters, which functions have and objects of a class in C++ have not.
py::object attribute_of_function(const Hook& /*hook*/, const std::string& name) {
  if (name == "__name__" || name == "__qualname__") {
    return py::str(kName);
  }
  if (name == "__signature__") {
    const py::module_ inspect = py::module_::import("inspect");
    const py::object make = inspect.attr("Parameter");
    py::list parameters;
    for (const char* const parameter : {"state", "bucket"}) {
      parameters.append(make(parameter, make.attr("POSITIONAL_OR_KEYWORD")));
    }
    return inspect.attr("Signature")(parameters);
  }
  throw py::attribute_error(std::string(kName) + " has no attribute " + name);
}

}  // namespace

void add_hook_class(py::module_& module) {
  py::class_<Hook, std::shared_ptr<Hook>>(
      module, "Hook",
      "A communication hook for DistributedDataParallel: model.register_comm_hook(None, Hook(model, policy=FILE)).")
      .def(py::init([](const py::object& model, const py::object& policy, const std::optional<std::string>& codec,
                       const std::optional<std::chrono::duration<double>>& timeout) {
             return std::make_shared<Hook>(DdpModel(model, kName), [&] {
               return HookOptions{.policy = policy_of(policy, codec), .timeout = timeout_of(timeout, kName)};
             });
           }),
           py::arg("model"), py::kw_only(), py::arg("policy") = py::none(), py::arg("codec") = py::none(),
           py::arg("timeout") = py::none(),
           "policy: a policy file. codec: one codec for all gradients, such as \"int8\", \"exact\" or \"auto\". "
           "Neither: the default policy. timeout: for any single wait, 30 minutes by default.")
      .def("__call__", &Hook::operator(), py::arg("state"), py::arg("bucket"))
      .def("__getattr__", &attribute_of_function)
      .def("statistics", &Hook::statistics, "What this rank has reduced and sent; {} before the first backward pass.")
      .def("explain", &Hook::explain, "A table of what each parameter resolved to, and why.")
      .def("state_dict", &Hook::state_dict, "This rank's residuals and step.")
      .def("load_state_dict", &Hook::load_state_dict, py::arg("state"),
           "Takes this rank's state_dict() of a job of as many ranks, or a list of those of all ranks of any job.")
      .def("set_loss_scale", &Hook::set_loss_scale, py::arg("scale"),
           "Sets the factor by which the next gradients are too large, GradScaler.get_scale().");
}

py::object make_hook(DdpModel model, const std::function<HookOptions()>& choose) {
  return py::cast(std::make_shared<Hook>(std::move(model), choose));
}

void close_hooks() {
  std::vector<std::shared_ptr<HookEngine>> engines;
  for (const std::weak_ptr<HookEngine>& engine : live_engines()) {
    engines.push_back(engine.lock());
  }
  const py::gil_scoped_release others_may_need_it;
  for (const std::shared_ptr<HookEngine>& engine : engines) {
    if (engine) {
      engine->close();
    }
  }
}

}  // namespace gradwire::torch_c10d
