#include "plugins/torch_c10d/ddp_model.hpp"

#include <utility>

namespace py = pybind11;

namespace gradwire::torch_c10d {

DdpBucket::DdpBucket(const py::object& bucket)
    : buffer(bucket.attr("buffer")().cast<at::Tensor>()),
      first(bucket.attr("index")().cast<std::size_t>() == 0),
      last(bucket.attr("is_last")().cast<bool>()),
      parameters(bucket.attr("parameters")().cast<Tensors>()) {}

DdpModel::DdpModel(const py::object& model, const std::string& caller) {
  if (!py::hasattr(model, "reducer") || !py::hasattr(model, "module")) {
    throw py::type_error(caller + ": give it the DistributedDataParallel, after it was made");
  }
  group_ = model.attr("process_group");
  for (const py::handle item : model.attr("module").attr("named_parameters")()) {
    const auto [name, parameter] = item.cast<std::pair<std::string, at::Tensor>>();
    if (parameter.requires_grad()) {
      device_ = parameter.device();
    }
    numbers_.emplace(parameter.unsafeGetTensorImpl(), parameters_.size());
    parameters_.push_back({.name = name, .ndim = static_cast<std::uint32_t>(parameter.dim())});
  }
}

std::optional<std::size_t> DdpModel::find(const at::Tensor& parameter) const {
  const auto found = numbers_.find(parameter.unsafeGetTensorImpl());
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace gradwire::torch_c10d
