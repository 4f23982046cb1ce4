// Draws the four distributions on which the error of codecs is stated (docs/explanation/numerics.md), from a seed.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace gradwire::test {

enum class Distribution : std::uint8_t { gauss, laplace, student_t3, lognormal_rows };

inline constexpr std::array kDistributions{Distribution::gauss, Distribution::laplace, Distribution::student_t3,
                                           Distribution::lognormal_rows};

constexpr std::string_view to_string(Distribution distribution) {
  constexpr std::array<std::string_view, 4> kNames{"gauss", "laplace", "student_t3", "lognormal_rows"};
  return kNames[static_cast<std::size_t>(distribution)];
}

/// lognormal_rows: rows of 1024 Gaussian elements, each row with a scale of exp(N(0, 1)); 0.1% of the elements
/// times 30.
inline std::vector<float> draw(Distribution distribution, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> gauss;
  std::exponential_distribution<double> exponential;
  std::student_t_distribution<double> student(3.0);
  std::uniform_real_distribution<double> uniform;
  std::vector<float> values(count);
  double row_scale = 1;
  for (std::size_t i = 0; i < count; ++i) {
    double x = 0;
    switch (distribution) {
      case Distribution::gauss: x = gauss(bits); break;
      case Distribution::laplace: x = exponential(bits) * (uniform(bits) < 0.5 ? -1 : 1); break;
      case Distribution::student_t3: x = student(bits); break;
      case Distribution::lognormal_rows:
        row_scale = i % 64 == 0 ? std::exp(1.5 * gauss(bits)) : row_scale;
        x = gauss(bits) * row_scale * (uniform(bits) < 0.001 ? 30 : 1);
        break;
    }
    values[i] = static_cast<float>(x);
  }
  return values;
}

/// Returns |approximation - values|^2 / |values|^2.
inline double normalized_squared_error(const std::vector<float>& values, const std::vector<float>& approximation) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(approximation[i]) - static_cast<double>(values[i]);
    error += difference * difference;
    power += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return error / power;
}

}  // namespace gradwire::test
