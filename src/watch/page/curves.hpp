// Curves of many ranks over one time axis. Inside of a page's numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "watch/page/summary.hpp"

namespace gradwire::watch::page {

/// Between the samples a straight line from (0, 0); after the last its value.
[[nodiscard]] double value_at(const Column& times, const Column& values, double time);

/// The ends of equal spans: as many as the samples allow, a second at least, up to 100.
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
