// Metrics in Prometheus' model, and as the text that Prometheus reads. This file uses no clock, lock or thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradwire::watch {

/// Counts values in ranges whose bounds are `first` times powers of 4: `first`, 4 first, 16 first, ... and all above.
class Histogram {
 public:
  static constexpr std::size_t kBounds = 13;

  explicit Histogram(double first = 1) noexcept : first_(first) {}
  /// A histogram of seconds: from 1 microsecond to 16.8 s.
  [[nodiscard]] static Histogram of_seconds() noexcept { return Histogram(1e-6); }
  /// A histogram of bytes: from 64 to 1 GiB.
  [[nodiscard]] static Histogram of_bytes() noexcept { return Histogram(64); }

  void add(double value) noexcept;
  void add(const Histogram& other) noexcept;
  [[nodiscard]] double bound(std::size_t i) const noexcept;
  /// The number of values at or below bound(i) and above the bound before; the last: above all bounds.
  [[nodiscard]] const std::array<std::uint64_t, kBounds + 1>& counts() const noexcept { return counts_; }
  /// The range in counts() that the value falls into.
  [[nodiscard]] std::size_t range_of(double value) const noexcept { return place_of(value / first_); }
  [[nodiscard]] std::uint64_t count() const noexcept;
  [[nodiscard]] double sum() const noexcept { return sum_; }

 private:
  [[nodiscard]] static std::size_t place_of(double x) noexcept;

  double first_;
  std::array<std::uint64_t, kBounds + 1> counts_{};
  double sum_ = 0;
};

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Sample {
  Labels labels;
  double value = 0;
};

struct HistogramSample {
  Labels labels;
  Histogram histogram;
};

enum class MetricType : std::uint8_t { counter, gauge, histogram };

/// All samples of one name.
struct Family {
  std::string name;
  std::string help;
  MetricType type = MetricType::gauge;
  std::vector<Sample> samples = {};
  std::vector<HistogramSample> histograms = {};  // of MetricType::histogram
};

/// The labels of every sample of a rank; without a name of the job where `job` is empty.
[[nodiscard]] Labels labels_of_rank(const std::string& part, int rank, const std::string& job);

/// The text format of Prometheus, version 0.0.4. Families without samples are left out. Each sample has the labels
/// `common`. The last line is "# EOF", which shows that a file is complete.
[[nodiscard]] std::string to_text(std::span<const Family> families, const Labels& common);

}  // namespace gradwire::watch
