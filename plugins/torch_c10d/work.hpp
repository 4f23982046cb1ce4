// A reduction under way, as Torch waits for it: by itself, by its result, or by its future.
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>

#include "plugins/torch_c10d/torch_version.hpp"

namespace gradwire::torch_c10d {

class ReductionWork final : public c10d::Work {
 public:
  ReductionWork(int rank, c10d::OpType type, const char* title, Tensors outputs, const Tensors& inputs);

  /// Once. Runs what waits for the future, on this thread.
  void complete(std::exception_ptr error);

  [[nodiscard]] Tensors result() override { return outputs_; }
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace gradwire::torch_c10d
