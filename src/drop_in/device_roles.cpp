#include "drop_in/device_roles.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace gradwire::drop_in {

DeviceRoles::Role DeviceRoles::next(const Signature& call, const void* buffer, std::uint64_t others, bool apart) {
  calls_.push_back({.address = reinterpret_cast<std::uintptr_t>(buffer),
                    .mark = others != others_,
                    .apart = apart,
                    .half = element_bytes(call.dtype) < sizeof(float)});
  if (calls_.size() > kMostCalls) {
    calls_.pop_front();
  }
  others_ = others;
  tracker_.next(call);
  if (tracker_.broke()) {
    period_ = 0;
    roles_.clear();
    next_ = 0;
    again_ = false;
    voted_ = false;  // a vote under way is about the step before
    ++breaks_;
  }
  const std::uint64_t number = number_++;
  if (period_ == 0) {
    return Role::open;
  }
  kinds_[number % period_] = call;
  return roles_[number % period_];
}

DeviceRoles::Role DeviceRoles::role_of(const Signature& kind) const {
  std::optional<Role> role;
  for (std::size_t place = 0; place < period_; ++place) {
    if (kinds_[place].count == 0) {
      return Role::open;  // it has not come since the step was agreed on
    }
    if (kinds_[place] == kind) {
      if (role.value_or(roles_[place]) != roles_[place]) {
        return Role::open;
      }
      role = roles_[place];
    }
  }
  return role.value_or(Role::open);
}

std::size_t DeviceRoles::calls_of_a_round() const noexcept {
  return std::max(kCallsOfARound, choice::kStepsOfAPlace * period_);
}

// It is two rounds, so that no call between two votes on a place is left out: a round of many places takes a while.
std::size_t DeviceRoles::steps_to_look_at() const noexcept {
  if (!again_) {
    return choice::kStepsOfAPlace;
  }
  return std::min<std::size_t>({2 * calls_of_a_round(), number_ - adopted_, calls_.size()}) / period_;
}

bool DeviceRoles::asks() const noexcept {
  if (voted_) {
    return false;
  }
  if (period_ == 0) {
    return tracker_.due() && tracker_.learnt() >= choice::kStepsOfAPlace * tracker_.shortest();
  }
  return next_ < period_ || (number_ - round_ended_ >= calls_of_a_round() &&
                             std::find(roles_.begin(), roles_.end(), Role::gradient) != roles_.end());
}

std::vector<choice::PlacedCall> DeviceRoles::latest(std::size_t calls) const {
  const std::size_t count = std::min(calls, calls_.size());
  return {calls_.end() - static_cast<std::ptrdiff_t>(count), calls_.end()};
}

// Writes 1 for each place that is not a gradient's on this rank by the latest `steps` steps.
void DeviceRoles::vote_on_places(std::span<std::uint32_t> votes, std::size_t period, std::size_t first,
                                 std::size_t steps) const {
  const std::vector<choice::PlacedCall> calls = latest(steps * period);
  const std::vector<bool> gradients = choice::gradients_of_step(calls, period, steps);
  for (std::size_t i = 0; i < period; ++i) {
    const std::size_t place = (number_ - period + i) % period;
    if (place >= first && place - first < votes.size()) {
      votes[place - first] = gradients[i] ? 0 : 1;
    }
  }
}

// Ranks agree on a number if the largest of it and the largest of its complement belong together.
void DeviceRoles::vote(std::span<std::uint32_t, kWords> words) {
  std::fill(words.begin(), words.end(), 0U);
  if (!asks()) {
    return;
  }
  voted_ = true;
  next_ = next_ < period_ ? next_ : 0;
  const std::size_t period = period_ != 0 ? period_ : choice::find_step(latest(tracker_.learnt()), tracker_.shortest());
  words[0] = static_cast<std::uint32_t>(period);
  words[1] = ~words[0];
  if (period != 0) {
    vote_on_places(words.subspan(2), period, next_, steps_to_look_at());
  }
}

void DeviceRoles::agreed(std::span<const std::uint32_t, kWords> words) {
  if (!std::exchange(voted_, false)) {
    return;
  }
  if (period_ == 0) {
    const std::size_t period = words[0] == ~words[1] ? words[0] : 0;
    // The calls since the vote may not repeat any more.
    const bool fits = period != 0 && period % tracker_.shortest() == 0 && period <= tracker_.learnt();
    tracker_.adopt(fits ? period : 0);
    if (!fits) {
      return;
    }
    period_ = period;
    adopted_ = number_;
    roles_.assign(period, Role::open);
    kinds_.assign(period, {});
  }
  const std::size_t end = std::min(period_, next_ + kPlacesAtOnce);
  for (std::size_t place = next_; place < end; ++place) {
    if (!again_ || roles_[place] == Role::gradient) {
      roles_[place] = words[2 + place - next_] == 0 ? Role::gradient : Role::none;
    }
  }
  next_ = end;
  if (next_ == period_) {
    again_ = true;
    round_ended_ = number_;
  }
}

}  // namespace gradwire::drop_in
