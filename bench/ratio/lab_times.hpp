// Reads measured speedups of all-reduces by a codec on a real link.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::bench {

/// Measured times on one real link, from the JSON of bench_all_reduce.
class LabTimes {
 public:
  /// Throws std::runtime_error that names the file if it is not such a report, or has an emulated link or another
  /// number of ranks.
  LabTimes(const std::string& file, int ranks);

  [[nodiscard]] double bytes_per_second() const noexcept { return bytes_per_second_; }
  /// Returns dense time / codec time for a message of `bytes`, each interpolated linearly between neighbouring measured
  /// sizes; dense is the fastest uncompressed row of any library. Returns no value outside the measured sizes or
  /// without such a codec.
  [[nodiscard]] std::optional<double> speedup(const std::string& codec, double bytes) const;

 private:
  using Times = std::map<double, double>;  // message bytes -> median seconds
  [[nodiscard]] static std::optional<double> time_of(const Times& times, double bytes);
  double bytes_per_second_ = 0;
  Times dense_;
  std::map<std::string, Times> codecs_;
};

}  // namespace gradwire::bench
