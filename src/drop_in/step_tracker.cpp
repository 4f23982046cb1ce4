#include "drop_in/step_tracker.hpp"

#include <algorithm>
#include <set>

namespace gradwire::drop_in {

std::optional<StepTracker::Place> StepTracker::next(const Signature& call, const Hint& hint) {
  broke_ = period_ != 0 && calls_[order_] != call;
  if (broke_) {
    forget();
  }
  if (period_ == 0) {
    learn(call, hint);
    return std::nullopt;
  }
  const Place place{.step = step_, .order = order_};
  if (++order_ == period_) {
    order_ = 0;
    ++step_;
  }
  return place;
}

void StepTracker::forget() {
  calls_.clear();
  hints_.clear();
  borders_.clear();
  next_look_ = 0;
  next_drop_ = kFirstDrop;
  period_ = 0;
  step_ = 0;
}

// The first step may differ from all others: DDP makes its buckets anew after it.
void StepTracker::keep_later_half() {
  if (from_the_start_) {
    return;
  }
  const std::vector<Signature> calls(calls_.begin() + static_cast<std::ptrdiff_t>(calls_.size() / 2), calls_.end());
  hints_.erase(hints_.begin(), hints_.end() - static_cast<std::ptrdiff_t>(calls.size()));
  calls_.clear();
  borders_.clear();
  for (const Signature& call : calls) {
    note(call);
  }
}

void StepTracker::learn(const Signature& call, const Hint& hint) {
  if (calls_.size() >= 2 * kLongestPeriod) {
    forget();
  }
  note(call);
  hints_.push_back(hint);
  if (calls_.size() >= next_drop_ && 2 * shortest() > calls_.size()) {
    next_drop_ *= 2;
    keep_later_half();
  }
  due_ = calls_.size() >= std::max({2 * shortest(), kLeastCalls, next_look_});
}

// One step of Knuth, Morris and Pratt: the shortest period of n calls is n minus their longest border.
void StepTracker::note(const Signature& call) {
  std::size_t border = borders_.empty() ? 0 : borders_.back();
  while (border > 0 && calls_[border] != call) {
    border = borders_[border - 1];
  }
  if (!calls_.empty() && calls_[border] == call) {
    ++border;
  }
  calls_.push_back(call);
  borders_.push_back(border);
}

std::size_t StepTracker::proposal() const {
  std::size_t fenced = 0;
  std::size_t identified = 0;
  for (std::size_t period = shortest(); 2 * period <= calls_.size(); period += shortest()) {
    if (fenced == 0 && one_fence(period)) {
      fenced = period;
    }
    if (identified == 0 && identities_repeat(period) && are_distinguishable(period)) {
      identified = period;
    }
  }
  const std::size_t longer = std::max(fenced, identified);
  const std::size_t other = std::min(fenced, identified);
  return other == 0 || longer % other == 0 ? longer : 0;
}

bool StepTracker::identities_repeat(std::size_t period) const {
  for (std::size_t i = period; i < hints_.size(); ++i) {
    if (hints_[i].identity == 0 || hints_[i].identity != hints_[i - period].identity) {
      return false;
    }
  }
  return true;
}

// Whether calls differ by their names or buffers. A job may send everything through a single buffer, so one buffer is
// no evidence.
bool StepTracker::are_distinguishable(std::size_t period) const {
  std::set<std::uint64_t> seen;
  bool named = true;
  for (std::size_t i = 0; i < period; ++i) {
    seen.insert(hints_[i].identity);
    named = named && hints_[i].named;
  }
  return seen.size() == period && (named || period > 1);
}

// The first call is not compared, since it is unknown what came before it.
bool StepTracker::one_fence(std::size_t period) const {
  for (std::size_t i = period + 1; i < hints_.size(); ++i) {
    if (hints_[i].fence != hints_[i - period].fence) {
      return false;
    }
  }
  return std::count_if(hints_.end() - static_cast<std::ptrdiff_t>(period), hints_.end(),
                       [](const Hint& hint) { return hint.fence; }) == 1;
}

void StepTracker::adopt(std::size_t period) {
  due_ = false;
  if (period == 0) {
    next_look_ = 2 * calls_.size();
    keep_later_half();
    return;
  }
  period_ = period;
  order_ = calls_.size() % period;
  calls_.resize(period);
  hints_.clear();
  borders_.clear();
}

}  // namespace gradwire::drop_in
