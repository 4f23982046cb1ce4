// A network of one hidden layer, whose gradients a backward pass makes in parts.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

struct Shape {
  int inputs = 64, hidden = 256, outputs = 32;
};

/// Consecutive parameters: whole rows of one layer.
struct Part {
  std::size_t first = 0, count = 0;  // parameters
  int first_row = 0, rows = 0;
  bool of_outputs = false;
};

/// The parameters are rows, each of them a unit's weights and its bias: those of the hidden units, then those of the
/// outputs.
class Network {
 public:
  Network(const Shape& shape, unsigned seed, float scale);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::vector<float>& values() { return values_; }
  void forward(const float* input, float* hidden, float* output) const;

  /// Cuts the parameters into parts of about `parameters` each, in the order in which a backward pass makes their
  /// gradients: outputs first.
  [[nodiscard]] std::vector<Part> parts(std::size_t parameters) const;

 private:
  friend class Batch;
  [[nodiscard]] const float* hidden_row(int row) const { return &values_[std::size_t(row) * (shape_.inputs + 1)]; }
  [[nodiscard]] const float* output_row(int row) const {
    return &values_[first_output_ + std::size_t(row) * (shape_.hidden + 1)];
  }

  Shape shape_;
  std::size_t first_output_;
  std::vector<float> values_;
};

/// Samples of a planted network, and what a backward pass over them needs.
class Batch {
 public:
  /// Draws `samples` new samples, and runs `network` over them.
  Batch(const Network& network, const Network& planted, int samples, std::mt19937& random);

  [[nodiscard]] double loss() const { return loss_; }  // mean squared error
  /// Writes the gradient of half the loss for one part. Parts of the outputs come before the others.
  void backward(const Part& part, float* gradient);

 private:
  const Network& network_;
  int samples_;
  double loss_ = 0;
  std::vector<float> input_, hidden_, error_, delta_;  // by sample
};
