// Defines a few named gradients for session tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/session.hpp"

namespace gradwire::test {

struct Gradient {
  std::string name;
  std::vector<float> values;
  TensorId id{};
};

/// Makes gradients with sizes around the borders of tiles, an empty one, and one of several MiB.
inline std::vector<Gradient> make_gradients() {
  std::vector<Gradient> gradients;
  const std::vector<std::pair<std::string, std::uint64_t>> shapes{
      {"embed.weight", 50000},  {"layer1.weight", 40000}, {"layer1.bias", 200},   {"empty", 0},
      {"layer2.weight", 20481}, {"layer2.bias", 1},       {"head.weight", 100000}};
  for (const auto& [name, count] : shapes) {
    gradients.push_back({name, std::vector<float>(count), {}});
  }
  return gradients;
}

/// Returns element i of tensor t on a rank in a step; its mean over ranks is known.
inline float gradient_value(std::size_t tensor, std::uint64_t i, int rank, std::uint64_t step) {
  const double base =
      std::sin(0.1 * static_cast<double>(i) + static_cast<double>(tensor) + 0.3 * static_cast<double>(step));
  return static_cast<float>(base * (1 + rank));
}

inline void fill(std::vector<Gradient>& gradients, int rank, std::uint64_t step) {
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (std::uint64_t i = 0; i < gradients[t].values.size(); ++i) {
      gradients[t].values[i] = gradient_value(t, i, rank, step);
    }
  }
}

inline void add_all(Session& session, std::vector<Gradient>& gradients) {
  for (Gradient& gradient : gradients) {
    gradient.id = session.add(gradient.name, view(gradient.values.data(), gradient.values.size()));
  }
}

/// Returns the L2 error of all gradients relative to `factor` times rank 0's input.
inline double error_against(const std::vector<Gradient>& gradients, std::uint64_t step, double factor) {
  double error = 0;
  double norm = 0;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (std::uint64_t i = 0; i < gradients[t].values.size(); ++i) {
      const double wanted = factor * gradient_value(t, i, 0, step);
      error += (gradients[t].values[i] - wanted) * (gradients[t].values[i] - wanted);
      norm += wanted * wanted;
    }
  }
  return std::sqrt(error / norm);
}

/// Returns the mean of 1 + rank.
inline double mean_factor(int world) { return (1 + world) / 2.0; }

}  // namespace gradwire::test
