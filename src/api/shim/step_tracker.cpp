#include "api/shim/step_tracker.hpp"

#include <algorithm>

namespace gradwire::shim {

std::optional<StepTracker::Place> StepTracker::next(const Signature& call) {
  broke_ = period_ != 0 && calls_[order_] != call;
  if (broke_) {
    calls_.clear();
    borders_.clear();
    period_ = 0;
    step_ = 0;
  }
  if (period_ == 0) {
    learn(call);
    return std::nullopt;
  }
  const Place place{.step = step_, .order = order_};
  if (++order_ == period_) {
    order_ = 0;
    ++step_;
  }
  return place;
}

// One step of Knuth, Morris and Pratt: the shortest period of n calls is n minus their longest border.
void StepTracker::learn(const Signature& call) {
  if (calls_.size() >= 2 * kLongestPeriod) {
    calls_.clear();
    borders_.clear();
  }
  std::size_t border = borders_.empty() ? 0 : borders_.back();
  while (border > 0 && calls_[border] != call) {
    border = borders_[border - 1];
  }
  if (!calls_.empty() && calls_[border] == call) {
    ++border;
  }
  calls_.push_back(call);
  borders_.push_back(border);
  const std::size_t shortest = calls_.size() - border;
  if (calls_.size() >= std::max(2 * shortest, kLeastCalls)) {
    period_ = shortest;
    order_ = calls_.size() % shortest;
    calls_.resize(shortest);
    borders_.clear();
  }
}

}  // namespace gradwire::shim
