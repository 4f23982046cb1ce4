// Finds the place of a call in its step only from the sequence of calls: a training step repeats, so it is a period of
// that sequence. Every rank sees the same calls in the same order, so all find the same shortest period. The step may
// be a multiple of it, as in a job with equal layers; hints tell which.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "drop_in/calls.hpp"

namespace gradwire::drop_in {

/// The properties by which calls of a step differ.
struct Signature {
  Function function = Function::other;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  friend auto operator<=>(const Signature&, const Signature&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Hints at the step, which may differ between ranks.
struct Hint {
  std::uint64_t identity = 0;  // hash of a named buffer's name; else the buffer's address, which jobs change and share
  bool named = false;
  bool fence = false;  // other collectives came since the call before: the loss, a norm
};

class StepTracker {
 public:
  struct Place {
    std::uint64_t step = 0;   // since the period became known
    std::uint64_t order = 0;  // calls before it in its step
  };

  /// With `from_the_start` places count from the very first call, so the step of a job whose first step differs is
  /// never found.
  explicit StepTracker(bool from_the_start = true) : from_the_start_(from_the_start) {}

  /// Notes the next call. Returns its place once a period was adopted.
  std::optional<Place> next(const Signature& call, const Hint& hint = {});
  /// Whether the latest call broke the period.
  [[nodiscard]] bool broke() const noexcept { return broke_; }
  /// Calls in a step; 0 while unknown.
  [[nodiscard]] std::size_t period() const noexcept { return period_; }

  /// Calls that it learns from: those since the start, or since the period broke, without the ones it dropped.
  [[nodiscard]] std::size_t learnt() const noexcept { return calls_.size(); }

  /// Whether adopt() is to be called: the calls since the start, or since the last one that broke the period, are at
  /// least two periods and at least kLeastCalls. The same on every rank.
  [[nodiscard]] bool due() const noexcept { return due_; }
  /// If due(), the shortest period, the same on every rank.
  [[nodiscard]] std::size_t shortest() const noexcept { return calls_.size() - borders_.back(); }
  /// If due(), this rank's proposal for the step, a multiple of the shortest period: the names repeat with it, or it
  /// contains just one fence, or its buffers, all different, repeat. 0: there is no such hint.
  [[nodiscard]] std::size_t proposal() const;
  /// Takes a multiple of the shortest period as the step. With 0 it looks again at twice as many calls, which begin
  /// with the later half of the ones so far unless places count from the start.
  void adopt(std::size_t period);

  // A step may begin with many calls of one signature, which look like a period of 1.
  static constexpr std::size_t kLeastCalls = 16;
  // Longer steps are never found.
  static constexpr std::size_t kLongestPeriod = 4096;
  // A job may begin with calls that never come again.
  static constexpr std::size_t kFirstDrop = 64;

  /// Begins to learn the step anew.
  void forget();

 private:
  void learn(const Signature& call, const Hint& hint);
  void note(const Signature& call);
  void keep_later_half();
  [[nodiscard]] bool identities_repeat(std::size_t period) const;
  [[nodiscard]] bool are_distinguishable(std::size_t period) const;
  [[nodiscard]] bool one_fence(std::size_t period) const;

  bool from_the_start_;
  std::vector<Signature> calls_;      // while learning, all calls since the start; then one period
  std::vector<Hint> hints_;           // while learning, the hints of these calls
  std::vector<std::size_t> borders_;  // for each prefix, the length of its longest proper prefix that is also a suffix
  std::size_t next_look_ = 0;         // calls
  std::size_t next_drop_ = kFirstDrop;  // calls without a period, of which the later half is kept
  std::size_t period_ = 0;
  std::size_t order_ = 0;  // of the next call
  std::uint64_t step_ = 0;
  bool due_ = false;
  bool broke_ = false;
};

}  // namespace gradwire::drop_in
