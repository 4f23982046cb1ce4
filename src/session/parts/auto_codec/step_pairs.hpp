// Times the steps of sessions over devices in pairs, which are the calls of a choice::DeviceGate: most pairs go the way
// in use, and in a trial one of the two steps goes a rival's way. Before and behind each step of a trial the ranks
// meet, and the time between two meetings is that of the step. A step behind one that leaves residuals adds these,
// which takes longer: where one way of a trial leaves some and the other does not, the other goes twice, and its second
// step is timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "choice/device_gate.hpp"

namespace gradwire::session {

class StepPairs {
 public:
  static constexpr std::uint64_t kSteps = 2;
  /// All steps are of one class.
  static constexpr choice::ChoiceClass kClass{.function = choice::Function::nccl_all_reduce};

  /// `gate` must outlive this. `leaves_residuals`: for each way to make a step, whether it leaves residuals.
  StepPairs(choice::DeviceGate& gate, std::vector<bool> leaves_residuals)
      : gate_(gate), leaves_residuals_(std::move(leaves_residuals)) {}

  /// Begins the next pair. Every rank calls it before the first step.
  void begin();
  /// `step` has ended and counts. The next pair begins if it was the last of its pair.
  void step_ended(std::uint64_t step);
  /// The ranks have met behind the latest step, `now` seconds after some moment.
  void met(double now);
  /// The next step has the number `step`, and no step before it is part of a trial.
  void go_on_from(std::uint64_t step);

  /// Returns the way of the coming step.
  [[nodiscard]] std::size_t way() const noexcept { return pair_.empty() ? 0 : pair_[0].way; }
  /// Returns the way in use, which differs from way() in a trial.
  [[nodiscard]] std::size_t in_use() const noexcept { return turn_.way; }
  /// Whether the ranks are to meet behind the latest step.
  [[nodiscard]] bool meets() const noexcept { return meets_; }
  /// Returns how many steps have counted.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// Returns the number of the latest step.
  [[nodiscard]] std::uint64_t latest() const noexcept { return latest_; }
  /// Returns how often way() has changed.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

 private:
  struct Half {
    std::size_t way = 0;
    bool timed = false;
  };
  void add_half(bool rival);

  choice::DeviceGate& gate_;
  std::vector<bool> leaves_residuals_;
  std::vector<Half> pair_;     // its coming steps
  std::optional<bool> timed_;  // the latest step, if it is timed: whether it went the rival's way
  choice::DeviceGate::Turn turn_;
  std::optional<choice::DeviceGate::Trial> ended_;  // a trial whose last step is the latest one, and which counts
  std::uint64_t steps_ = 0;
  std::uint64_t latest_ = 0;  // number of the latest step
  std::uint64_t changes_ = 0;
  bool meets_ = false;
  bool intact_ = false;                 // nothing came between the steps of the trial
  std::array<double, 2> seconds_ = {};  // of the trial's steps: by the way in use, and by the rival
  double met_ = 0;                      // when the ranks met last
};

}  // namespace gradwire::session
