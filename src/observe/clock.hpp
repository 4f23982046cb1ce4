// The clock of events: the processor's time stamp counter where its rate never changes, CLOCK_MONOTONIC elsewhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gradwire::observe {

/// The time of CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t monotonic_nanoseconds() noexcept;

enum class ClockKind : std::uint8_t { none, tsc, monotonic };
/// The best clock of this processor: CPUID says whether its counter always runs at the same rate.
[[nodiscard]] ClockKind best_clock() noexcept;
/// "tsc", "clock_gettime"
[[nodiscard]] std::string_view to_string(ClockKind kind) noexcept;

/// The time of a clock of this kind; never 0.
[[nodiscard]] inline std::uint64_t read_clock(ClockKind kind) noexcept {
#if defined(__x86_64__)
  if (kind == ClockKind::tsc) [[likely]] {
    return __rdtsc();
  }
#endif
  static_cast<void>(kind);
  return monotonic_nanoseconds();
}

/// Converts ticks to time by a line through one moment.
struct TimeScale {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;  // CLOCK_MONOTONIC at that moment
  double nanoseconds_per_tick = 1;

  [[nodiscard]] double seconds(std::uint64_t elapsed_ticks) const noexcept {
    return static_cast<double>(elapsed_ticks) * nanoseconds_per_tick * 1e-9;
  }
  /// The time of a tick on CLOCK_MONOTONIC.
  [[nodiscard]] std::int64_t nanoseconds_at(std::uint64_t at) const noexcept {
    const auto elapsed = static_cast<std::int64_t>(at - ticks);
    return static_cast<std::int64_t>(nanoseconds) +
           static_cast<std::int64_t>(static_cast<double>(elapsed) * nanoseconds_per_tick);
  }
};

/// Finds the scale by reading both clocks now and then; it is the more exact, the longer ago the first reading was.
class Calibration {
 public:
  explicit Calibration(ClockKind kind);
  [[nodiscard]] TimeScale scale();

 private:
  struct Moment {
    std::uint64_t ticks;
    std::uint64_t nanoseconds;
  };
  [[nodiscard]] Moment look() const;

  ClockKind kind_;
  Moment first_;
  double nanoseconds_per_tick_ = 1;
};

}  // namespace gradwire::observe
