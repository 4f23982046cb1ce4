// The parts of one session, in the order of its table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/part/part.hpp"

namespace gradwire::session {

class Parts {
 public:
  explicit Parts(PartTable table) : table_(std::move(table)), parts_(table_.size()) {}

  /// Makes the parts of that kind that do not exist yet. If a maker throws, none is made.
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
  /// Lets each part of that kind take over from the one that the same row of the same table made in the world before.
  void take_over(Parts& before, PartMaker::When when);
  /// "scales, counter": those that ranks compare. Empty where there is none.
  [[nodiscard]] std::string names() const;
  /// What this rank tells the others beside the plan: one line a part that says() anything.
  [[nodiscard]] std::string says() const;
  /// Ranks have agreed; `told`: what each of them says(). What the parts implement stays as it was until recollect().
  void agreed(Agreement agreement, const std::vector<std::string>& told);
  /// Asks all parts again what they implement, and adds to `comparison` those that compare; it must not outlive this.
  void recollect(StepComparison& comparison);
  /// Lines of parts that were made then.
  [[nodiscard]] std::string explain(PartMaker::When when) const;
  /// Whether a call of the coming step has changed a part already.
  [[nodiscard]] bool in_step() const;
  /// What takes rows of files for the part that has some. Null: none has.
  [[nodiscard]] table::RowSink* begin_rows() const;
  [[nodiscard]] bool has_begun_rows() const;

  // Where no part implements one of these, it costs a look at an empty list.
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
  /// Whether anything is decided from what steps took.
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

  /// Parts that ranks change together at the end of a step, and those that share data out over the ranks.
  [[nodiscard]] const std::vector<StepParticipant*>& participants() const noexcept { return participants_; }
  [[nodiscard]] std::vector<SharedOut*> shared_out() const;

  /// Null where no part is one.
  [[nodiscard]] Background* background() const noexcept { return background_; }

  /// The part of that type, for calls of the public interface that are about it alone. Null where there is none.
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
  std::vector<std::unique_ptr<Part>> parts_;  // by row of the table; null: not needed, or not yet
  std::vector<ComparedPart*> compared_;
  std::vector<Tuner*> tuners_;
  std::vector<StepTimer*> timers_;
  std::vector<StepListener*> listeners_;
  std::vector<StepParticipant*> participants_;
  Background* background_ = nullptr;
};

}  // namespace gradwire::session
