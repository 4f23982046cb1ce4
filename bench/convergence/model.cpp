#include "bench/convergence/model.hpp"

#include <algorithm>
#include <cmath>

#include "bench/convergence/random.hpp"

namespace gradwire::convergence {
namespace {

constexpr std::uint64_t kParameterStream = 1;

// Computes out[j] += factor x in[j]. This is the inner loop of all functions here; its sums are independent.
void add_scaled(float* out, float factor, const float* in, std::size_t count) {
  for (std::size_t j = 0; j < count; ++j) {
    out[j] += factor * in[j];
  }
}

// Computes tanh by a rational function, to 1e-6: std::tanh takes half of a small model's time, and differs between C
// libraries.
float fast_tanh(float x) {
  const float y = std::clamp(x, -7.9F, 7.9F), s = y * y;
  float above = -2.76076847742355e-16F;
  for (const float term : {2.00018790482477e-13F, -8.60467152213735e-11F, 5.12229709037114e-08F, 1.48572235717979e-05F,
                           6.37261928875436e-04F, 4.89352455891786e-03F}) {
    above = above * s + term;
  }
  float below = 1.19825839466702e-06F;
  for (const float term : {1.18534705686654e-04F, 2.26843463243900e-03F, 4.89352518554385e-03F}) {
    below = below * s + term;
  }
  return y * above / below;
}

// Applies softmax in place.
void normalize(std::span<float> logits) {
  const float greatest = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (float& logit : logits) {
    logit = std::exp(logit - greatest);
    sum += logit;
  }
  for (float& logit : logits) {
    logit /= sum;
  }
}

}  // namespace

std::string Shape::to_string() const {
  return std::to_string(inputs) + "-" + std::to_string(hidden) + "-" + std::to_string(classes);
}

void Score::add(const Score& other) {
  loss += other.loss;
  correct += other.correct;
  count += other.count;
}

struct Mlp::Block {
  explicit Block(const Shape& shape)
      : classes(shape.classes), width(shape.hidden), hidden(kBlock * width), logits(kBlock * classes) {}
  [[nodiscard]] float* hidden_of(std::size_t row) { return hidden.data() + row * width; }
  [[nodiscard]] std::span<float> logits_of(std::size_t row) { return {logits.data() + row * classes, classes}; }

  std::size_t classes, width;
  std::vector<float> hidden, logits;
};

Mlp::Mlp(const Shape& shape, std::uint64_t seed)
    : shape_(shape),
      bias1_(shape.inputs * shape.hidden),
      weight2_(bias1_ + shape.hidden),
      bias2_(weight2_ + shape.hidden * shape.classes),
      parameters_(bias2_ + shape.classes),
      gradients_(parameters_.size()) {
  Random random(seed, kParameterStream);
  const auto fill = [&](std::size_t first, std::size_t count, std::size_t fan_in) {
    const float deviation = 1 / std::sqrt(static_cast<float>(fan_in));
    std::generate_n(parameters_.begin() + static_cast<std::ptrdiff_t>(first), count,
                    [&] { return deviation * random.gauss(); });
  };
  fill(0, bias1_, shape.inputs);
  fill(weight2_, bias2_ - weight2_, shape.hidden);
}

std::vector<Mlp::Tensor> Mlp::tensors() const {
  return {{"fc1.weight", 0, bias1_, 2},
          {"fc1.bias", bias1_, shape_.hidden, 1},
          {"fc2.weight", weight2_, bias2_ - weight2_, 2},
          {"fc2.bias", bias2_, shape_.classes, 1}};
}

void Mlp::forward(const float* const (&rows)[kBlock], Block& block) const {
  const float* parameters = parameters_.data();
  for (std::size_t row = 0; row < kBlock; ++row) {
    std::copy_n(parameters + bias1_, shape_.hidden, block.hidden_of(row));
  }
  for (std::size_t i = 0; i < shape_.inputs; ++i) {
    const float* weights = parameters + i * shape_.hidden;
    for (std::size_t row = 0; row < kBlock; ++row) {
      add_scaled(block.hidden_of(row), rows[row][i], weights, shape_.hidden);
    }
  }
  for (std::size_t row = 0; row < kBlock; ++row) {
    float* hidden = block.hidden_of(row);
    float* logits = block.logits_of(row).data();
    std::copy_n(parameters + bias2_, shape_.classes, logits);
    for (std::size_t j = 0; j < shape_.hidden; ++j) {
      hidden[j] = fast_tanh(hidden[j]);
    }
    for (std::size_t j = 0; j < shape_.hidden; ++j) {
      add_scaled(logits, hidden[j], parameters + weight2_ + j * shape_.classes, shape_.classes);
    }
    normalize(block.logits_of(row));
  }
}

void Mlp::accumulate(const float* const (&rows)[kBlock], const std::uint8_t (&labels)[kBlock], std::size_t used,
                     float scale, Block& block) {
  float* gradients = gradients_.data();
  for (std::size_t row = 0; row < used; ++row) {
    const auto errors = block.logits_of(row);
    errors[labels[row]] -= 1;
    for (float& error : errors) {
      error *= scale;
    }
    add_scaled(gradients + bias2_, 1, errors.data(), shape_.classes);
    float* hidden = block.hidden_of(row);
    for (std::size_t j = 0; j < shape_.hidden; ++j) {
      const float* weights = parameters_.data() + weight2_ + j * shape_.classes;
      float sum = 0;
      for (std::size_t k = 0; k < shape_.classes; ++k) {
        sum += errors[k] * weights[k];
      }
      add_scaled(gradients + weight2_ + j * shape_.classes, hidden[j], errors.data(), shape_.classes);
      hidden[j] = sum * (1 - hidden[j] * hidden[j]);  // from here on the gradient before the tanh
    }
    add_scaled(gradients + bias1_, 1, hidden, shape_.hidden);
  }
  for (std::size_t i = 0; i < shape_.inputs; ++i) {
    for (std::size_t row = 0; row < used; ++row) {
      add_scaled(gradients + i * shape_.hidden, rows[row][i], block.hidden_of(row), shape_.hidden);
    }
  }
}

void Mlp::backward(const Samples& samples, std::span<const std::uint32_t> batch) {
  std::fill(gradients_.begin(), gradients_.end(), 0.0F);
  Block block(shape_);
  const float scale = 1 / static_cast<float>(batch.size());
  for (std::size_t first = 0; first < batch.size(); first += kBlock) {
    const std::size_t used = std::min(kBlock, batch.size() - first);
    const float* rows[kBlock];
    std::uint8_t labels[kBlock];
    for (std::size_t row = 0; row < kBlock; ++row) {  // a short block repeats its last row, unused
      const std::uint32_t sample = batch[first + std::min(row, used - 1)];
      rows[row] = samples.row(sample);
      labels[row] = samples.labels[sample];
    }
    forward(rows, block);
    accumulate(rows, labels, used, scale, block);
  }
}

Score Mlp::score(const Samples& samples) const {
  Score score;
  Block block(shape_);
  for (std::size_t first = 0; first < samples.count(); first += kBlock) {
    const std::size_t used = std::min(kBlock, samples.count() - first);
    const float* rows[kBlock];
    for (std::size_t row = 0; row < kBlock; ++row) {
      rows[row] = samples.row(first + std::min(row, used - 1));
    }
    forward(rows, block);
    for (std::size_t row = 0; row < used; ++row) {
      const auto probabilities = block.logits_of(row);
      const std::uint8_t label = samples.labels[first + row];
      score.loss -= std::log(std::max(probabilities[label], 1e-30F));
      const auto best = std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin();
      score.correct += best == label ? 1 : 0;
    }
    score.count += used;
  }
  return score;
}

}  // namespace gradwire::convergence
