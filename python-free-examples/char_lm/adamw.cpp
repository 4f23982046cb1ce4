#include "adamw.hpp"

#include <cmath>
#include <cstdint>
#include <utility>

namespace char_lm {

AdamW::AdamW(std::vector<torch::Tensor> parameters, const AdamWOptions& options)
    : options_(options), parameters_(std::move(parameters)) {
  for (const torch::Tensor& parameter : parameters_) {
    first_.emplace_back(parameter.numel());
    second_.emplace_back(parameter.numel());
  }
}

void AdamW::step() {
  beta1_power_ *= options_.beta1;
  if (!frozen_) {
    beta2_power_ *= options_.beta2;
  }
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rate = static_cast<float>(options_.learning_rate / (1 - beta1_power_));
  const auto scale = static_cast<float>(1 / std::sqrt(1 - beta2_power_));
  const auto epsilon = static_cast<float>(options_.epsilon);
  const auto keep = static_cast<float>(1 - options_.learning_rate * options_.weight_decay);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    auto* value = parameters_[p].data_ptr<float>();
    const auto* gradient = parameters_[p].grad().data_ptr<float>();
    float* m = first_[p].data();
    float* v = second_[p].data();
    for (std::size_t i = 0; i < first_[p].size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * gradient[i];
      if (!frozen_) {
        v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i];
      }
      value[i] = keep * value[i] - rate * m[i] / (std::sqrt(v[i]) * scale + epsilon);
    }
  }
}

void AdamW::zero_grad() {
  for (torch::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) {
      parameter.grad().zero_();
    }
  }
}

}  // namespace char_lm
