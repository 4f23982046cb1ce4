#include "bench/support/inputs.hpp"

#include <array>
#include <cmath>
#include <random>

namespace gradwire::bench {
namespace {

constexpr std::uint64_t kRowElements = 1024;
constexpr std::size_t kTableBits = 14;

// Returns a table of standard Gaussian numbers to pick from; drawing each number would take longer than the benchmark.
const std::array<float, 1U << kTableBits>& gaussians() {
  static const auto table = [] {
    std::array<float, 1U << kTableBits> values{};
    std::mt19937_64 random(20240601);
    std::normal_distribution<float> normal;
    for (float& value : values) {
      value = normal(random);
    }
    return values;
  }();
  return table;
}

// Computes splitmix64: a counter in, 64 well mixed bits out.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace

void fill_gradient(int rank, std::uint64_t first, std::span<float> values) {
  const auto& table = gaussians();
  const std::uint64_t seed = mix(static_cast<std::uint64_t>(rank) + 1);
  float scale = 0;
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % kRowElements == 0) {
      const std::uint64_t row = index / kRowElements;
      scale = 1e-3F * std::exp(table[mix(row ^ 0x5CA1EULL) & (table.size() - 1)]);
    }
    const std::uint64_t bits = mix(seed ^ index);
    const bool outlier = (bits >> 40) % 1000 == 0;
    values[i] = scale * table[bits & (table.size() - 1)] * (outlier ? 30.0F : 1.0F);
  }
}

}  // namespace gradwire::bench
