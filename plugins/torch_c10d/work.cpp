#include "plugins/torch_c10d/work.hpp"

#include <utility>

namespace gradwire::torch_c10d {

ReductionWork::ReductionWork(int rank, c10d::OpType type, const char* title, Tensors outputs, const Tensors& inputs)
    : Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void ReductionWork::complete(std::exception_ptr error) {
  if (!ended_.exchange(true)) {
    tell(std::move(error));
  }
}

void ReductionWork::complete_after(const std::function<void()>& end) {
  if (ended_.exchange(true)) {
    return;
  }
  std::exception_ptr error;
  try {
    end();
  } catch (...) {
    error = std::current_exception();
  }
  tell(std::move(error));
}

void ReductionWork::tell(std::exception_ptr error) {
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  finish(error);
}

}  // namespace gradwire::torch_c10d
