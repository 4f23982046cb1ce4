// Random numbers that are the same with every standard library. The standard fixes its generators, but not its
// distributions, so these are written here.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace gradwire::convergence {

class Random {
 public:
  /// `stream` separates the uses of one seed: data, parameters, the batches of each rank.
  Random(std::uint64_t seed, std::uint64_t stream) : bits_(seed * 1'000'003 + stream) {}

  /// Returns a number in [0, 1).
  [[nodiscard]] double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  /// Returns a number in [0, bound).
  [[nodiscard]] std::size_t below(std::size_t bound) { return bits_() % bound; }
  [[nodiscard]] float gauss() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform()));
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace gradwire::convergence
