#include "session/parts/auto_codec/step_pairs.hpp"

#include <algorithm>

namespace gradwire::session {
namespace {

constexpr std::uint64_t kAnySize = 1;

}  // namespace

void StepPairs::begin() {
  turn_ = gate_.next(kClass, kAnySize, leaves_residuals_.size());
  pair_.clear();
  made_ = 0;
  if (turn_.trial) {
    add_half(turn_.trial->rival_first);
    add_half(!turn_.trial->rival_first);
  } else {
    pair_.assign(kSteps, {.way = turn_.way});
  }
  intact_ = turn_.trial.has_value();
  set_way(pair_[0].way);
}

void StepPairs::add_half(bool rival) {
  const std::size_t way = rival ? turn_.trial->rival : turn_.way;
  const std::size_t other = rival ? turn_.way : turn_.trial->rival;
  if (leaves_residuals_[other] && !leaves_residuals_[way]) {
    pair_.push_back({.way = way, .rival = rival});
  }
  pair_.push_back({.way = way, .rival = rival, .timed = true});
}

void StepPairs::step_ended(std::uint64_t step) {
  intact_ = intact_ && step == latest_ + 1;
  latest_ = step;
  ++steps_;
  meets_ = turn_.trial.has_value();
  timed_ = pair_[made_].timed ? std::optional(pair_[made_]) : std::nullopt;
  if (++made_ < pair_.size()) {
    set_way(pair_[made_].way);
    return;
  }
  ended_ = intact_ ? turn_.trial : std::nullopt;
  begin();
  meets_ = meets_ || turn_.trial.has_value();
}

void StepPairs::met(double now) {
  const double seconds = now - met_;
  met_ = now;
  if (timed_) {
    (timed_->rival ? rival_seconds_ : in_use_seconds_) = seconds;
    timed_.reset();
  }
  if (ended_) {
    gate_.timed(ended_->number, in_use_seconds_, rival_seconds_);
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
