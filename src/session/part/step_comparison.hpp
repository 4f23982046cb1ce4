// What ranks compare at ends of steps that all of them know: one gather for all who have something to compare.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exchange/peers.hpp"
#include "session/runner/runner.hpp"

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
  /// Whether ranks may wait for each other in a finish() that asks for it. Else their numbers are under way until the
  /// next finish(), in which all of them have come: who calls finish() in another order than others does not wait.
  [[nodiscard]] virtual bool blocks() const { return true; }
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
  ~StepComparison();
  StepComparison(const StepComparison&) = delete;
  StepComparison& operator=(const StepComparison&) = delete;
  /// `part` must outlive this; in the same order on every rank.
  void add(ComparedPart& part) { parts_.push_back({&part}); }

  /// Collective where a part is due. Error(mismatch) where ranks are not at the same step.
  void end_step(std::uint64_t step);
  /// Whether end_step() would do anything for a part that does not block; the same on every rank.
  [[nodiscard]] bool under_way() const noexcept { return posted_ != nullptr; }

  /// Any thread: this rank's comparisons since the last reset, and what they took.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] double seconds() const noexcept { return seconds_.load(std::memory_order_relaxed); }
  void reset_counts() noexcept;

 private:
  struct Part {
    ComparedPart* compared;
    double seconds = 0;  // of its last take()
  };
  using Numbers = std::vector<std::vector<double>>;  // by rank
  [[nodiscard]] bool asks(std::uint64_t step, bool blocking) const;
  void append(std::uint64_t step, const std::function<bool(const ComparedPart&)>& takes_part);
  Numbers gather();
  void post(std::uint64_t step);
  void finish_posted();
  void conclude(const Numbers& all);

  Runner& runner_;
  std::vector<Part> parts_;
  double gather_seconds_ = 0;
  double posting_seconds_ = 0;
  // Of the comparison under way.
  std::unique_ptr<exchange::Peers::Posted> posted_;
  std::uint64_t step_ = 0;
  std::vector<double> numbers_;
  std::vector<Part*> riders_;
  std::vector<std::size_t> begins_;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<double> seconds_ = 0;
};

}  // namespace gradwire::session
