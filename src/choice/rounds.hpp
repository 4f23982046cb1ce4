// What ranks make of rounds that each of them timed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace gradwire::choice {

/// The slowest rank's number at each place: what a collective takes is what its last rank takes.
[[nodiscard]] inline std::vector<double> slowest(const std::vector<std::vector<double>>& all) {
  std::vector<double> most = all[0];
  for (const std::vector<double>& numbers : all) {
    for (std::size_t i = 0; i < most.size(); ++i) {
      most[i] = std::max(most[i], numbers[i]);
    }
  }
  return most;
}

/// Of several rounds, each as long as its slowest rank's: a rank that comes late finds what was sent meanwhile.
[[nodiscard]] inline double quickest(std::span<const double> rounds) {
  return *std::min_element(rounds.begin(), rounds.end());
}

/// Of an even number of values the greater of the middle two.
[[nodiscard]] inline double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace gradwire::choice
