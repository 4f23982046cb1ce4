// The last few values of a series, and their median, which one spike does not change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/median.hpp"

namespace gradwire::choice {

class MovingMedian {
 public:
  explicit MovingMedian(std::size_t size) : size_(size) {}

  /// Does not allocate once the window was full.
  void add(double value) {
    if (values_.size() < size_) {
      values_.push_back(value);
    } else if (size_ > 0) {
      values_[oldest_] = value;
      oldest_ = (oldest_ + 1) % size_;
    }
  }
  void clear() {
    values_.clear();
    oldest_ = 0;
  }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  /// The median, or the lower of two middle values; 0 if there are no values.
  [[nodiscard]] double median() const { return lower_median(values_); }

 private:
  std::size_t size_;
  std::size_t oldest_ = 0;  // index of the oldest value, once there are `size_` values
  std::vector<double> values_;
};

}  // namespace gradwire::choice
