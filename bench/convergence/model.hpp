// A classifier with one hidden layer (tanh), softmax and cross-entropy, forward and backward in plain loops.
// Every sum runs in a fixed order, so that ranks and runs agree to the bit whatever the compiler vectorises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradwire::convergence {

struct Shape {
  std::size_t inputs = 0, hidden = 0, classes = 0;
  /// Returns a text such as "32-64-10".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Rows of `inputs` features, with one label each.
struct Samples {
  std::size_t inputs = 0;
  std::vector<float> features;
  std::vector<std::uint8_t> labels;

  [[nodiscard]] std::size_t count() const { return labels.size(); }
  [[nodiscard]] const float* row(std::size_t index) const { return features.data() + index * inputs; }
};

/// Loss and correct answers, summed over samples.
struct Score {
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t count = 0;

  void add(const Score& other);
  [[nodiscard]] double mean_loss() const { return loss / static_cast<double>(count); }
  /// Returns the accuracy in per cent.
  [[nodiscard]] double accuracy() const { return 100.0 * static_cast<double>(correct) / static_cast<double>(count); }
};

class Mlp {
 public:
  /// One parameter tensor: a range of parameters() and of gradients().
  struct Tensor {
    const char* name;
    std::size_t first, count;
    std::uint32_t dimensions;
  };

  /// Weights are Gaussian with variance 1 / inputs of their layer, and biases are zero; they are a pure function of
  /// `seed`.
  Mlp(const Shape& shape, std::uint64_t seed);

  [[nodiscard]] std::vector<Tensor> tensors() const;
  [[nodiscard]] std::vector<float>& parameters() { return parameters_; }
  [[nodiscard]] std::vector<float>& gradients() { return gradients_; }

  /// Sets gradients() to the mean over the samples named by `batch`.
  void backward(const Samples& samples, std::span<const std::uint32_t> batch);
  [[nodiscard]] Score score(const Samples& samples) const;

 private:
  // Rows that pass through a layer together, so that its weights are read once for all of them.
  static constexpr std::size_t kBlock = 4;
  struct Block;

  void forward(const float* const (&rows)[kBlock], Block& block) const;
  void accumulate(const float* const (&rows)[kBlock], const std::uint8_t (&labels)[kBlock], std::size_t used,
                  float scale, Block& block);

  Shape shape_;
  std::size_t bias1_, weight2_, bias2_;  // offsets of the tensors; the first layer's weights start at 0
  std::vector<float> parameters_, gradients_;
};

}  // namespace gradwire::convergence
