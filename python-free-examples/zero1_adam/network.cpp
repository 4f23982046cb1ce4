#include "network.hpp"

#include <algorithm>
#include <cmath>

namespace {

float dot(const float* a, const float* b, int count) {
  float partial[8] = {};
  for (int i = 0; i < count; ++i) {
    partial[i % 8] += a[i] * b[i];
  }
  float sum = 0;
  for (const float p : partial) {
    sum += p;
  }
  return sum;
}

}  // namespace

Network::Network(const Shape& shape, unsigned seed, float scale)
    : shape_(shape),
      first_output_(std::size_t(shape.hidden) * (shape.inputs + 1)),
      values_(first_output_ + std::size_t(shape.outputs) * (shape.hidden + 1)) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i] = scale * normal(random) / std::sqrt(float(i < first_output_ ? shape.inputs : shape.hidden));
  }
}

void Network::forward(const float* input, float* hidden, float* output) const {
  for (int h = 0; h < shape_.hidden; ++h) {
    hidden[h] = std::tanh(dot(hidden_row(h), input, shape_.inputs) + hidden_row(h)[shape_.inputs]);
  }
  for (int o = 0; o < shape_.outputs; ++o) {
    output[o] = dot(output_row(o), hidden, shape_.hidden) + output_row(o)[shape_.hidden];
  }
}

std::vector<Part> Network::parts(std::size_t parameters) const {
  std::vector<Part> parts;
  for (const bool of_outputs : {true, false}) {
    const int rows = of_outputs ? shape_.outputs : shape_.hidden;
    const std::size_t width = std::size_t(of_outputs ? shape_.hidden : shape_.inputs) + 1;
    const int each = std::max(1, int(parameters / width));
    for (int row = 0; row < rows; row += each) {
      const int count = std::min(each, rows - row);
      parts.push_back({(of_outputs ? first_output_ : 0) + row * width, count * width, row, count, of_outputs});
    }
  }
  return parts;
}

Batch::Batch(const Network& network, const Network& planted, int samples, std::mt19937& random)
    : network_(network),
      samples_(samples),
      input_(std::size_t(samples) * network.shape().inputs),
      hidden_(std::size_t(samples) * network.shape().hidden),
      error_(std::size_t(samples) * network.shape().outputs),
      delta_(hidden_.size(), 0.0F) {
  const auto [inputs, hidden, outputs] = network.shape();
  std::normal_distribution<float> normal;
  std::vector<float> unused(hidden), target(outputs);
  for (int s = 0; s < samples; ++s) {
    float* input = &input_[std::size_t(s) * inputs];
    float* error = &error_[std::size_t(s) * outputs];
    std::generate_n(input, inputs, [&] { return normal(random); });
    planted.forward(input, unused.data(), target.data());
    network.forward(input, &hidden_[std::size_t(s) * hidden], error);
    for (int o = 0; o < outputs; ++o) {
      error[o] -= target[o];
      loss_ += double(error[o]) * error[o] / outputs / samples;
      error[o] /= float(samples);
    }
  }
}

void Batch::backward(const Part& part, float* gradient) {
  const auto [inputs, hidden, outputs] = network_.shape();
  const int width = part.of_outputs ? hidden : inputs;
  std::fill_n(gradient, part.count, 0.0F);
  for (int s = 0; s < samples_; ++s) {
    const float* units = &hidden_[std::size_t(s) * hidden];
    float* delta = &delta_[std::size_t(s) * hidden];
    const float* input = part.of_outputs ? units : &input_[std::size_t(s) * inputs];
    for (int r = 0; r < part.rows; ++r) {
      const int row = part.first_row + r;
      const float slope =
          part.of_outputs ? error_[std::size_t(s) * outputs + row] : delta[row] * (1 - units[row] * units[row]);
      float* of_row = gradient + std::size_t(r) * (width + 1);
      for (int i = 0; i < width; ++i) {
        of_row[i] += slope * input[i];
      }
      of_row[width] += slope;
      if (part.of_outputs) {
        const float* weights = network_.output_row(row);
        for (int h = 0; h < hidden; ++h) {
          delta[h] += slope * weights[h];
        }
      }
    }
  }
}
