// Curves of many ranks over one time axis. Internal to the numbers of a page.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "watch/page/summary.hpp"

namespace gradwire::watch::page {

/// The value at a time: on straight lines between the samples, beginning at (0, 0); after the last one its value.
[[nodiscard]] double value_at(const Column& times, const Column& values, double time);

/// The ends of equal spans: up to 100, as many as the samples allow, of at least a second.
[[nodiscard]] std::vector<double> spans_of(const Job& job);

/// Values of ranks at each place of the axis.
class Gathered {
 public:
  void add(std::size_t places, std::size_t place, double value);
  [[nodiscard]] Column mean() const;
  [[nodiscard]] Band band();

 private:
  std::vector<std::vector<double>> values_;
};

/// The latest value of each gauge of each rank, at each of these times.
[[nodiscard]] std::map<std::string, Band> gauges_of(const Job& job, const std::vector<double>& times);

}  // namespace gradwire::watch::page
