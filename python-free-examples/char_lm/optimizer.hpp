// Applies gradwire::AdamW to a model's parameters, each by its name.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "gradwire/optimizer.hpp"
#include "model.hpp"
#include "training.hpp"

namespace char_lm {

/// The parameters' memory must not move; each must have a .grad() at every step.
class Optimizer {
 public:
  Optimizer(const Transformer& model, const TrainingOptions& options)
      : adamw_({.learning_rate = options.learning_rate,
                .beta2 = 0.98,
                .phi = options.precondition > 0 ? options.precondition : gradwire::AdamWOptions{}.phi}) {
    for (const auto& item : model->named_parameters()) {
      parameters_.push_back(item.value());
      adamw_.add(item.key(), {item.value().data_ptr<float>(), static_cast<std::size_t>(item.value().numel())});
    }
  }

  void zero_grad() {
    for (torch::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        parameter.grad().zero_();
      }
    }
  }

  void step(const gradwire::StepOutcome& outcome) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor gradient = parameters_[i].grad();
      adamw_.set_gradient(i, {gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())});
    }
    adamw_.step(outcome);
  }

  [[nodiscard]] gradwire::AdamW& adamw() { return adamw_; }

 private:
  std::vector<torch::Tensor> parameters_;
  gradwire::AdamW adamw_;
};

}  // namespace char_lm
