// What ranks compare at ends of steps that all of them know: one gather for all who have something to compare.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "session/runner.hpp"

namespace gradwire::session {

/// Who compares numbers of all ranks and concludes the same on each of them.
class ComparedPart {
 public:
  ComparedPart() = default;
  ComparedPart(const ComparedPart&) = delete;
  ComparedPart& operator=(const ComparedPart&) = delete;
  virtual ~ComparedPart() = default;

  /// Whether ranks compare after `step`; the same on every rank.
  [[nodiscard]] virtual bool due(std::uint64_t step) const = 0;
  /// Whether this takes part where another one is due; the same on every rank.
  [[nodiscard]] virtual bool rides(std::uint64_t step) const { return due(step); }
  /// This rank's numbers: as many on every rank.
  virtual void append(std::vector<double>& numbers) = 0;

  struct Compared {
    std::uint64_t step = 0;
    std::vector<std::span<const double>> ranks;  // what each appended
    double seconds = 0;                          // the gather before, and what this part's take() took on the slowest
    double gather_seconds = 0;                   // the gather before, on the rank that came last and waited for nobody
  };
  /// Collective: after the gather, in the order in which parts were given.
  virtual void take(const Compared& compared) = 0;
};

class StepComparison {
 public:
  /// `runner` must outlive this.
  explicit StepComparison(Runner& runner) : runner_(runner) {}
  /// `part` must outlive this; in the same order on every rank.
  void add(ComparedPart& part) { parts_.push_back({&part}); }

  /// Collective where a part is due. Error(mismatch) where ranks are not at the same step.
  void end_step(std::uint64_t step);

  /// Any thread: this rank's comparisons so far, and what they took.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] double seconds() const noexcept { return seconds_.load(std::memory_order_relaxed); }

 private:
  struct Part {
    ComparedPart* compared;
    double seconds = 0;  // of its last take()
  };
  void compare(std::uint64_t step);
  std::vector<std::vector<double>> gather_steps(const std::vector<double>& numbers);

  Runner& runner_;
  std::vector<Part> parts_;
  double gather_seconds_ = 0;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<double> seconds_ = 0;
};

}  // namespace gradwire::session
