// Metrics as Prometheus knows them, and as the text that it reads. No clock, no lock, no thread.
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

/// How often values lay in ranges whose bounds are powers of 4: `first`, 4 first, 16 first, ... and all above.
class Histogram {
 public:
  static constexpr std::size_t kBounds = 13;

  explicit Histogram(double first = 1) noexcept : first_(first) {}
  /// Of seconds: from 1 microsecond to 16.8 s.
  [[nodiscard]] static Histogram of_seconds() noexcept { return Histogram(1e-6); }
  /// Of bytes: from 64 to 1 GiB.
  [[nodiscard]] static Histogram of_bytes() noexcept { return Histogram(64); }

  void add(double value) noexcept;
  void add(const Histogram& other) noexcept;
  [[nodiscard]] double bound(std::size_t i) const noexcept;
  /// At or below bound(i), and above the one before; the last: above all.
  [[nodiscard]] const std::array<std::uint64_t, kBounds + 1>& counts() const noexcept { return counts_; }
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

enum class Type : std::uint8_t { counter, gauge, histogram };

/// All of one name.
struct Family {
  std::string name;
  std::string help;
  Type type = Type::gauge;
  std::vector<Sample> samples = {};
  std::vector<HistogramSample> histograms = {};  // of Type::histogram
};

/// The text format of Prometheus, version 0.0.4. Families without samples are left out. `common` stands on each sample.
/// The last line is "# EOF": a file that has it is whole.
[[nodiscard]] std::string to_text(std::span<const Family> families, const Labels& common);

}  // namespace gradwire::watch
