// Computes sums of gradients over steps, which error feedback conserves.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "model.hpp"

namespace gradwire::test {

class Sums {
 public:
  /// Returns the unit by which element i of tensor t is divided; without it, that is 1.
  using Unit = double (*)(std::size_t t, std::size_t i);
  explicit Sums(Unit unit = nullptr) : unit_(unit) {}

  void add(const std::vector<Gradient>& gradients, double factor = 1) {
    sums_.resize(gradients.size());
    for (std::size_t t = 0; t < sums_.size(); ++t) {
      sums_[t].resize(gradients[t].values.size());
      for (std::size_t i = 0; i < sums_[t].size(); ++i) {
        const double unit = unit_ == nullptr ? 1 : unit_(t, i);
        sums_[t][i] += factor * static_cast<double>(gradients[t].values[i]) / unit;
      }
    }
  }
  /// Returns the error relative to the norm of `wanted`.
  [[nodiscard]] double error_against(const Sums& wanted) const {
    double error = 0;
    double norm = 0;
    for (std::size_t t = 0; t < sums_.size(); ++t) {
      for (std::size_t i = 0; i < sums_[t].size(); ++i) {
        error += (sums_[t][i] - wanted.sums_[t][i]) * (sums_[t][i] - wanted.sums_[t][i]);
        norm += wanted.sums_[t][i] * wanted.sums_[t][i];
      }
    }
    return std::sqrt(error / norm);
  }

 private:
  Unit unit_;
  std::vector<std::vector<double>> sums_;
};

}  // namespace gradwire::test
