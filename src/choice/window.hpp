// The last few values of a series, and their median, which one spike does not change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace gradwire::choice {

class Window {
 public:
  explicit Window(std::size_t size) : size_(size) {}

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
  [[nodiscard]] double median() const {
    if (values_.empty()) {
      return 0;
    }
    std::vector<double> sorted(values_.begin(), values_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

 private:
  std::size_t size_;
  std::size_t oldest_ = 0;  // once there are `size_`
  std::vector<double> values_;
};

}  // namespace gradwire::choice
