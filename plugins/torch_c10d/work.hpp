// A running reduction as an object that Torch can wait for: by wait(), by its result, or by its future.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <exception>
#include <functional>

#include "plugins/torch_c10d/torch_version.hpp"

namespace gradwire::torch_c10d {

class ReductionWork final : public c10d::Work {
 public:
  ReductionWork(int rank, c10d::OpType type, const char* title, Tensors outputs, const Tensors& inputs);

  /// Only the first call counts. Runs the callbacks of the future, on this thread.
  void complete(std::exception_ptr error);
  /// The same, after `end` has made the result; an exception from it is the error. If the work has ended already, `end`
  /// is not called.
  void complete_after(const std::function<void()>& end);

  [[nodiscard]] Tensors result() override { return outputs_; }
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  void tell(std::exception_ptr error);

  std::atomic<bool> ended_ = false;
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace gradwire::torch_c10d
