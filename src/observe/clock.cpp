#include "observe/clock.hpp"

#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX's clocks and local time

namespace gradwire::observe {

std::uint64_t monotonic_nanoseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

ClockKind best_clock() noexcept {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kPowerManagement = 0x80000007;
  constexpr unsigned kInvariant = 1U << 8;
  if (__get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0 && (d & kInvariant) != 0) {
    return ClockKind::tsc;
  }
#endif
  return ClockKind::monotonic;
}

std::string_view to_string(ClockKind kind) noexcept {
  switch (kind) {
    case ClockKind::tsc: return "tsc";
    case ClockKind::monotonic: return "clock_gettime";
    default: return "none";
  }
}

Calibration::Calibration(ClockKind kind) : kind_(kind), first_(look()) {}

// Reads both clocks, and repeats that if the thread was interrupted in between.
Calibration::Moment Calibration::look() const {
  Moment best{};
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = read_clock(kind_);
    const std::uint64_t now = monotonic_nanoseconds();
    const std::uint64_t after = read_clock(kind_);
    if (after - before < least) {
      least = after - before;
      best = {before + (after - before) / 2, now};
    }
  }
  return best;
}

TimeScale Calibration::scale() {
  if (kind_ != ClockKind::tsc) {
    const std::uint64_t now = monotonic_nanoseconds();
    return {now, now, 1};
  }
  const Moment now = look();
  if (now.ticks > first_.ticks && now.nanoseconds > first_.nanoseconds) {
    nanoseconds_per_tick_ =
        static_cast<double>(now.nanoseconds - first_.nanoseconds) / static_cast<double>(now.ticks - first_.ticks);
  }
  return {now.ticks, now.nanoseconds, nanoseconds_per_tick_};
}

}  // namespace gradwire::observe
