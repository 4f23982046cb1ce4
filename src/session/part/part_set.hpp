// The parts of one session, in the order of its table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/part/part.hpp"

namespace gradwire::session {

class PartSet {
 public:
  explicit PartSet(PartTable table) : table_(std::move(table)), parts_(table_.size()) {}

  /// Makes the parts with this `when` that do not exist yet. If a maker throws, none is made.
  void make(const PartInputs& inputs, PartMaker::When when);
  /// Destroys the parts that were made with the plan, because the plan will be made again.
  void unmake();
  /// Calls `call` with each part, in the order of the table.
  template <typename Call>
  void for_each(Call&& call) const {
    for (const auto& part : parts_) {
      if (part != nullptr) {
        call(*part);
      }
    }
  }
  /// Lets each part with this `when` take over from the part that the same row of the table made in the previous world.
  void take_over(PartSet& before, PartMaker::When when);
  /// Returns the names that ranks compare, such as "scales, counter". Empty if there are none.
  [[nodiscard]] std::string names() const;
  /// Returns what this rank tells the other ranks with the plan: one line for each part whose says() is not empty.
  [[nodiscard]] std::string says() const;
  /// Tells the parts that ranks have agreed. `told` holds the says() of each rank. Until recollect() the session calls
  /// the parts by the interfaces that they had before.
  void agreed(Agreement agreement, const std::vector<std::string>& told) const;
  /// Asks all parts again what they implement, and adds those that compare to `comparison`, which this must outlive.
  void recollect(StepComparison& comparison);
  /// Returns the lines of the parts with this `when`.
  [[nodiscard]] std::string explain(PartMaker::When when) const;
  /// Whether a call of the coming step has changed a part already.
  [[nodiscard]] bool in_step() const;
  /// Returns the sink of the part that has rows, or null if no part has any.
  [[nodiscard]] table::RowSink* begin_rows() const;
  /// Frees rows that were read from files and that no load() took.
  void forget_rows() const;

  // If no part implements one of these, its call costs only a look at an empty list.
  void tune(StepInfo& info) const {
    for (const Tuner* tuner : tuners_) {
      tuner->tune(info);
    }
  }
  [[nodiscard]] bool look_at_buckets(std::uint64_t step) const;
  void bucket_ended(std::uint64_t step, const Buckets::Ended& bucket) {
    for (Tuner* tuner : tuners_) {
      tuner->bucket_ended(step, bucket);
    }
  }
  void step_ended(std::uint64_t step, const StepSeen& seen) {
    for (Tuner* tuner : tuners_) {
      tuner->step_ended(step, seen);
    }
  }
  [[nodiscard]] std::uint64_t revision() const noexcept;
  /// Whether some part decides from the measurements of steps, so that they must be taken.
  [[nodiscard]] bool tune() const noexcept { return !tuners_.empty(); }
  /// Whether some part compares ranks after `step`; the same on every rank.
  [[nodiscard]] bool due(std::uint64_t step) const;
  void time_step(StepTimer::Time now, double exposed, bool as_usual) {
    for (StepTimer* timer : timers_) {
      timer->step_ended(now, exposed, as_usual);
    }
  }
  void waited(double seconds) noexcept {
    for (StepTimer* timer : timers_) {
      timer->waited(seconds);
    }
  }
  void step_over(const StepOutcome& outcome, std::uint64_t begin, StepTimer::Time end) {
    for (StepListener* listener : listeners_) {
      listener->step_over(outcome, begin, end);
    }
  }

  /// Parts that ranks change together at the end of a step, those that share data out over the ranks, and those that
  /// look at results.
  [[nodiscard]] const std::vector<StepParticipant*>& participants() const noexcept { return participants_; }
  [[nodiscard]] std::vector<SharedOut*> shared_out() const;
  [[nodiscard]] const std::vector<ResultReader*>& result_readers() const noexcept { return result_readers_; }

  /// Returns null if no part works in the background.
  [[nodiscard]] Background* background() const noexcept { return background_; }

  /// Returns the part of type `Kind`, for public calls that are about it alone, or null if there is none.
  template <typename Kind>
  [[nodiscard]] Kind* find() const {
    for (const auto& part : parts_) {
      if (auto* found = dynamic_cast<Kind*>(part.get())) {
        return found;
      }
    }
    return nullptr;
  }

 private:
  void collect();

  PartTable table_;
  std::vector<std::unique_ptr<Part>> parts_;  // by row of the table; null if not needed, or not made yet
  std::vector<ComparedPart*> compared_;
  std::vector<Tuner*> tuners_;
  std::vector<StepTimer*> timers_;
  std::vector<StepListener*> listeners_;
  std::vector<StepParticipant*> participants_;
  std::vector<ResultReader*> result_readers_;
  Background* background_ = nullptr;
};

}  // namespace gradwire::session
