#include "session/parts/auto_codec/step_pairs.hpp"

#include <algorithm>

namespace gradwire::session {
namespace {

constexpr std::uint64_t kAnySize = 1;

}  // namespace

void StepPairs::begin() {
  turn_ = gate_.next(kClass, kAnySize, leaves_residuals_.size());
  pair_.clear();
  if (turn_.trial) {
    add_half(turn_.trial->rival_first);
    add_half(!turn_.trial->rival_first);
  } else {
    pair_.assign(kSteps, {.way = turn_.way});
  }
  intact_ = turn_.trial.has_value();
}

void StepPairs::add_half(bool rival) {
  const std::size_t way = rival ? turn_.trial->rival : turn_.way;
  const std::size_t other = rival ? turn_.way : turn_.trial->rival;
  if (leaves_residuals_[other] && !leaves_residuals_[way]) {
    pair_.push_back({.way = way});
  }
  pair_.push_back({.way = way, .timed = true});
}

void StepPairs::step_ended(std::uint64_t step) {
  intact_ = intact_ && step == latest_ + 1;
  latest_ = step;
  ++steps_;
  meets_ = turn_.trial.has_value();
  const Half half = pair_[0];
  timed_ = half.timed ? std::optional(half.way != turn_.way) : std::nullopt;
  pair_.erase(pair_.begin());
  if (pair_.empty()) {
    ended_ = intact_ ? turn_.trial : std::nullopt;
    begin();
    meets_ = meets_ || turn_.trial.has_value();
  }
  changes_ += way() == half.way ? 0 : 1;
}

void StepPairs::met(double now) {
  const double seconds = now - met_;
  met_ = now;
  if (timed_) {
    seconds_[*timed_ ? 1 : 0] = seconds;
    timed_.reset();
  }
  if (ended_) {
    gate_.timed(ended_->number, seconds_[0], seconds_[1]);
    ended_.reset();
  }
}

void StepPairs::go_on_from(std::uint64_t step) {
  latest_ = step - std::min<std::uint64_t>(step, 1);
  intact_ = false;
}

}  // namespace gradwire::session
