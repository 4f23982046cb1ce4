// The dense layers: their inputs are embedded categories and numbers, their output is the logit of a click.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace ctr_hybrid {

class ModelImpl : public torch::nn::Module {
 public:
  /// `inputs` is fields x width + numbers.
  ModelImpl(std::int64_t inputs, std::int64_t hidden);
  /// Maps [samples, fields x width] and [samples, numbers] to [samples].
  torch::Tensor forward(const torch::Tensor& embedded, const torch::Tensor& numbers);

 private:
  torch::nn::Linear first_, second_, last_;
};
TORCH_MODULE(Model);

}  // namespace ctr_hybrid
