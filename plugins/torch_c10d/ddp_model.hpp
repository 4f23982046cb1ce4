// What a communication hook knows of its DistributedDataParallel: the names of parameters, the group, and buckets.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "plugins/torch_c10d/hook_engine.hpp"
#include "plugins/torch_c10d/torch_version.hpp"

namespace gradwire::torch_c10d {

/// Buckets and futures are Python objects here, since not every Torch has the headers of the C++ ones.
struct DdpBucket {
  at::Tensor buffer;   // the gradients one after another; alone and sparse if its parameter's gradient is
  bool first = false;  // of the backward pass
  bool last = false;
  Tensors parameters;  // whose gradients it holds, in this order

  explicit DdpBucket(const pybind11::object& bucket);
  [[nodiscard]] bool dense() const { return buffer.layout() == at::kStrided; }
};

class DdpModel {
 public:
  /// `caller` begins the message of the TypeError for another object than a DistributedDataParallel.
  DdpModel(const pybind11::object& model, const std::string& caller);

  [[nodiscard]] const std::vector<HookParameter>& parameters() const noexcept { return parameters_; }
  /// The number of a parameter, if it is one of the model's.
  [[nodiscard]] std::optional<std::size_t> find(const at::Tensor& parameter) const;
  /// Where the parameters are.
  [[nodiscard]] const at::Device& device() const noexcept { return device_; }
  /// The torch.distributed.ProcessGroup.
  [[nodiscard]] const pybind11::object& group() const noexcept { return group_; }

 private:
  pybind11::object group_;
  at::Device device_{at::kCPU};
  std::vector<HookParameter> parameters_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> numbers_;  // DDP's reducer keeps the keys alive
};

}  // namespace gradwire::torch_c10d
