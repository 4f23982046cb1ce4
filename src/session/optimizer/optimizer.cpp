#include "gradwire/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "memory/pool_allocator.hpp"

namespace gradwire {
namespace {

using Pool = memory::PoolAllocator<float, memory::MemoryUse::copies>;

}  // namespace

float* Optimizer::PoolAllocator::allocate(std::size_t count) { return Pool().allocate(count); }
void Optimizer::PoolAllocator::deallocate(float* memory, std::size_t count) noexcept {
  Pool().deallocate(memory, count);
}

std::size_t Optimizer::add(std::string_view name, std::span<float> parameter, std::span<const float> gradient) {
  const std::string what = "optimizer: \"" + std::string(name) + "\"";
  if (steps_ > 0) {
    throw Error(ErrorCode::invalid_argument, what + " comes after the first step; add every parameter before");
  }
  if (std::any_of(tensors_.begin(), tensors_.end(), [&](const Tensor& other) { return other.name == name; })) {
    throw Error(ErrorCode::invalid_argument, what + " was added already; names must differ");
  }
  if (!gradient.empty()) {
    check_gradient(name, parameter, gradient);
  }
  tensors_.push_back(
      {.name = std::string(name), .parameter = parameter, .gradient = gradient, .moments = {}, .scale = {}});
  for (std::size_t i = 0; i < moments_; ++i) {  // without a vector to copy from, which would be one moment more
    tensors_.back().moments.emplace_back(parameter.size());
  }
  return tensors_.size() - 1;
}

void Optimizer::check_gradient(std::string_view name, std::span<const float> parameter,
                               std::span<const float> gradient) {
  if (gradient.size() != parameter.size()) {
    throw Error(ErrorCode::invalid_argument, "optimizer: the gradient of \"" + std::string(name) + "\" has " +
                                                 std::to_string(gradient.size()) + " elements, the parameter " +
                                                 std::to_string(parameter.size()));
  }
}

void Optimizer::require_index(std::size_t index) const {
  if (index >= tensors_.size()) {
    throw Error(ErrorCode::invalid_argument, "optimizer: " + std::to_string(index) + " is none of its " +
                                                 std::to_string(tensors_.size()) + " indices");
  }
}

void Optimizer::set_gradient(std::size_t index, std::span<const float> gradient) {
  require_index(index);
  check_gradient(tensors_[index].name, tensors_[index].parameter, gradient);
  tensors_[index].gradient = gradient;
}

void Optimizer::set_loss_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw Error(ErrorCode::invalid_argument,
                "optimizer: loss scale " + std::to_string(scale) + " must be finite and above 0");
  }
  loss_scale_ = scale;
}

std::size_t Optimizer::index_of(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) { return tensor.name == name; });
  if (found == tensors_.end()) {
    throw Error(ErrorCode::invalid_argument, "optimizer: no parameter \"" + std::string(name) + "\" was added");
  }
  return static_cast<std::size_t>(found - tensors_.begin());
}

bool Optimizer::step(const StepOutcome& outcome) {
  if (outcome.skipped || outcome.repeat || outcome.nonfinite) {
    return false;
  }
  for (const Tensor& tensor : tensors_) {
    if (tensor.gradient.size() != tensor.parameter.size()) {
      throw Error(ErrorCode::invalid_argument, "optimizer: \"" + tensor.name + "\" has no gradient; set_gradient()");
    }
    if (makes_what_is_sent() && !tensor.made_to_send) {
      throw Error(ErrorCode::invalid_argument, "optimizer: \"" + tensor.name +
                                                   "\" was not given to to_send() in this step; call it with every "
                                                   "gradient before ready(), since momentum is sent");
    }
  }
  begin_step();
  for (Tensor& tensor : tensors_) {
    update(tensor, static_cast<float>(1 / loss_scale_));
    tensor.made_to_send = false;
    if (!tensor.scale.empty()) {
      renew_scale(tensor);
    }
  }
  ++steps_;
  return true;
}

AdamW::AdamW(const AdamWOptions& options)
    : Optimizer("adamw", options.learning_rate, 2, {1, 1, 0}), options_(options) {}

void AdamW::begin_step() {
  numbers_[kBeta1Power] *= options_.beta1;
  if (!frozen()) {
    numbers_[kBeta2Power] *= options_.beta2;
  }
}

void AdamW::update(Tensor& tensor, float gradient_factor) {
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rate = static_cast<float>(learning_rate() / (1 - numbers_[kBeta1Power]));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - numbers_[kBeta2Power]));
  const auto epsilon = static_cast<float>(options_.epsilon);
  const auto keep = static_cast<float>(1 - learning_rate() * options_.weight_decay);
  float* m = tensor.moments[0].data();
  float* v = tensor.moments[1].data();
  for (std::size_t i = 0; i < tensor.parameter.size(); ++i) {
    const float gradient = tensor.gradient[i] * gradient_factor;
    m[i] = sends_momentum() ? gradient : beta1 * m[i] + (1 - beta1) * gradient;
    if (!frozen()) {
      v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    }
    const float step = frozen() && v[i] == 0 ? 0.0F : rate * m[i] / (std::sqrt(v[i]) * correction + epsilon);
    tensor.parameter[i] = keep * tensor.parameter[i] - step;
  }
}

void AdamW::to_send(std::size_t index, std::span<float> gradient) {
  require_index(index);
  check_gradient(tensors_[index].name, tensors_[index].parameter, gradient);
  tensors_[index].made_to_send = true;
  if (!sends_momentum()) {
    return;
  }
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto kept = static_cast<float>(options_.beta1 * loss_scale());
  const float* m = tensors_[index].moments[0].data();
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = kept * m[i] + (1 - beta1) * gradient[i];
  }
}

std::span<const float> AdamW::scale(std::size_t index) {
  require_index(index);
  Tensor& tensor = tensors_[index];
  if (tensor.scale.empty()) {
    tensor.scale.resize(tensor.parameter.size());
    renew_scale(tensor);
  }
  return tensor.scale;
}

// Sums in double and in a fixed order, because all ranks must get the same mean.
void AdamW::renew_scale(Tensor& tensor) const {
  const Floats& v = tensor.moments[1];
  double sum = 0;
  for (const float x : v) {
    sum += static_cast<double>(x);
  }
  const auto least = static_cast<float>(options_.phi * std::sqrt(v.empty() ? 0 : sum / static_cast<double>(v.size())));
  for (std::size_t i = 0; i < v.size(); ++i) {
    tensor.scale[i] = std::sqrt(v[i]) + least;
  }
}

void Sgd::update(Tensor& tensor, float gradient_factor) {
  const auto momentum = static_cast<float>(options_.momentum);
  const auto decay = static_cast<float>(options_.weight_decay);
  const auto rate = static_cast<float>(learning_rate());
  float* m = tensor.moments[0].data();
  for (std::size_t i = 0; i < tensor.parameter.size(); ++i) {
    m[i] = momentum * m[i] + (tensor.gradient[i] * gradient_factor + decay * tensor.parameter[i]);
    tensor.parameter[i] -= rate * m[i];
  }
}

}  // namespace gradwire
