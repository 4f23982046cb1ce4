#include "session/parts/auto_codec/step_pairs.hpp"

#include <algorithm>

namespace gradwire::session {
namespace {

constexpr std::uint64_t kAnySize = 1;

}  // namespace

void StepPairs::begin() {
  turn_ = gate_.next(kClass, kAnySize, ways_);
  intact_ = turn_.trial.has_value();
  set_way(turn_.trial && turn_.trial->rival_first ? turn_.trial->rival : turn_.way);
}

void StepPairs::step_ended(std::uint64_t step) {
  intact_ = intact_ && step == latest_ + 1;
  latest_ = step;
  ++steps_;
  const bool tried = turn_.trial.has_value();
  if (within_pair()) {
    if (tried) {
      set_way(turn_.trial->rival_first ? turn_.way : turn_.trial->rival);
    }
    meets_ = tried;
    return;
  }
  ended_ = intact_ ? turn_.trial : std::nullopt;
  begin();
  meets_ = tried || turn_.trial.has_value();
}

void StepPairs::met(double now) {
  const double seconds = now - met_;
  met_ = now;
  if (meets_ && within_pair()) {
    first_seconds_ = seconds;
  } else if (ended_) {
    gate_.timed(ended_->number, ended_->rival_first ? seconds : first_seconds_,
                ended_->rival_first ? first_seconds_ : seconds);
    ended_.reset();
  }
}

void StepPairs::go_on_from(std::uint64_t step) {
  latest_ = step - std::min<std::uint64_t>(step, 1);
  intact_ = false;
}

void StepPairs::set_way(std::size_t way) {
  changes_ += way == way_ ? 0 : 1;
  way_ = way;
}

}  // namespace gradwire::session
