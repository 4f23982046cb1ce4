// Where a call stands in its step, from nothing but the sequence of calls: a training step repeats, so it shows as the
// period of that sequence. Every rank sees the same calls in the same order, so all find the same places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "api/shim/decision.hpp"

namespace gradwire::shim {

/// What tells one call of a step from another.
struct Signature {
  Function function = Function::other;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  friend bool operator==(const Signature&, const Signature&) = default;
};

class StepTracker {
 public:
  struct Place {
    std::uint64_t step = 0;   // since the period became known
    std::uint64_t order = 0;  // calls before it in its step
  };

  /// Notes the next call; its place, once the period is known. It is known when the calls since the start, or since
  /// the last that broke the period, were two periods or more, and kLeastCalls at least.
  std::optional<Place> next(const Signature& call);
  /// The latest call broke a period that was known.
  [[nodiscard]] bool broke() const noexcept { return broke_; }
  /// Calls in a step; 0 while unknown.
  [[nodiscard]] std::size_t period() const noexcept { return period_; }

  // A step may begin with many calls of one signature, which look like a period of 1.
  static constexpr std::size_t kLeastCalls = 16;
  // Longer steps are never known.
  static constexpr std::size_t kLongestPeriod = 4096;

 private:
  void learn(const Signature& call);

  std::vector<Signature> calls_;      // while learning all since the start, then one period
  std::vector<std::size_t> borders_;  // of each prefix: length of its longest proper prefix that is a suffix too
  std::size_t period_ = 0;
  std::size_t order_ = 0;  // of the next call
  std::uint64_t step_ = 0;
  bool broke_ = false;
};

}  // namespace gradwire::shim
