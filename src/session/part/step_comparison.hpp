// StepComparison lets ranks compare numbers at the ends of certain steps, with one gather for all parts that compare.
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

/// A part that compares numbers of all ranks and comes to the same conclusion on each of them.
class ComparedPart {
 public:
  ComparedPart() = default;
  ComparedPart(const ComparedPart&) = delete;
  ComparedPart& operator=(const ComparedPart&) = delete;
  virtual ~ComparedPart() = default;

  /// Whether ranks compare after `step`; the same on every rank.
  [[nodiscard]] virtual bool due(std::uint64_t step) const = 0;
  /// Whether this part joins a comparison for which another part is due; the same on every rank.
  [[nodiscard]] virtual bool rides(std::uint64_t step) const { return due(step); }
  /// Whether ranks may wait for each other in the finish() that asks for the comparison. Otherwise the numbers travel
  /// until the next finish(), when all of them have arrived, so that ranks that call finish() in different orders do
  /// not wait for each other.
  [[nodiscard]] virtual bool blocks() const { return true; }
  /// Appends this rank's numbers, as many on every rank.
  virtual void append(std::vector<double>& numbers) = 0;

  struct Compared {
    std::uint64_t step = 0;
    std::vector<std::span<const double>> ranks;  // the numbers of each rank
    double seconds = 0;                          // previous gather plus this part's take() on the slowest rank
    double gather_seconds = 0;                   // previous gather on the rank that came last and waited for nobody
  };
  /// Takes the numbers of all ranks, after the gather, in the order in which parts were added. Collective.
  virtual void take(const Compared& compared) = 0;
};

class StepComparison {
 public:
  /// `runner` must outlive this.
  explicit StepComparison(Runner& runner) : runner_(runner) {}
  ~StepComparison();
  StepComparison(const StepComparison&) = delete;
  StepComparison& operator=(const StepComparison&) = delete;
  /// Adds a part, in the same order on every rank. `part` must outlive this.
  void add(ComparedPart& part) { parts_.push_back({&part}); }

  /// Compares ranks after `step`; collective if a part is due. Throws Error(mismatch) if ranks are at different steps.
  void end_step(std::uint64_t step);
  /// Whether end_step() would do anything for a part that does not block; the same on every rank.
  [[nodiscard]] bool under_way() const noexcept { return posted_ != nullptr; }

  // Any thread may call these three, which count this rank's comparisons since the last reset and their time.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] double seconds() const noexcept { return seconds_.load(std::memory_order_relaxed); }
  void reset_counts() noexcept;

 private:
  struct Part {
    ComparedPart* compared;
    double seconds = 0;  // time of the part's last take()
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
  // The comparison under way.
  std::unique_ptr<exchange::Peers::Posted> posted_;
  std::uint64_t step_ = 0;
  std::vector<double> numbers_;
  std::vector<Part*> riders_;
  std::vector<std::size_t> begins_;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<double> seconds_ = 0;
};

}  // namespace gradwire::session
