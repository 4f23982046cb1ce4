#include "model.hpp"

#include <torch/nn/module.h>

namespace ctr_hybrid {

ModelImpl::ModelImpl(std::int64_t inputs, std::int64_t hidden)
    : first_(inputs, hidden), second_(hidden, hidden / 2), last_(hidden / 2, 1) {
  register_module("first", first_);
  register_module("second", second_);
  register_module("last", last_);
}

torch::Tensor ModelImpl::forward(const torch::Tensor& embedded, const torch::Tensor& numbers) {
  torch::Tensor x = torch::cat({embedded, numbers}, 1);
  x = torch::relu(first_(x));
  x = torch::relu(second_(x));
  return last_(x).squeeze(1);
}

}  // namespace ctr_hybrid
