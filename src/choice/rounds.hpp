// Functions that combine the times of rounds that each rank measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace gradwire::choice {

/// Returns the slowest rank's number at each place, since a collective takes as long as its last rank.
[[nodiscard]] inline std::vector<double> slowest(const std::vector<std::vector<double>>& all) {
  std::vector<double> most = all[0];
  for (const std::vector<double>& numbers : all) {
    for (std::size_t i = 0; i < most.size(); ++i) {
      most[i] = std::max(most[i], numbers[i]);
    }
  }
  return most;
}

/// Returns the quickest of several rounds, each as long as on its slowest rank: a rank that comes late finds messages
/// that were sent meanwhile, so its own time is too short.
[[nodiscard]] inline double quickest(std::span<const double> rounds) {
  return *std::min_element(rounds.begin(), rounds.end());
}

}  // namespace gradwire::choice
