#include "plugins/mpi_preload/known_calls.hpp"

#include <utility>

namespace gradwire::mpi_preload {

KnownCall* KnownCalls::remember(const CallKey& key, std::uint64_t bytes, const drop_in::Router::Route& route) {
  const std::pair name{key, route.what.reason};
  const MutexLock lock(mutex_);
  auto found = all_.find(name);
  if (found == all_.end()) {
    if (all_.size() >= kMost) {
      return nullptr;
    }
    found = all_.try_emplace(name).first;
    KnownCall& made = found->second;
    made = {.key = key, .what = route.what, .choice = route.choice, .bytes = bytes};
    made.left = route.turn.left != nullptr ? route.turn.left : &made.own_remaining;
  }
  KnownCall& known = found->second;
  if (route.lasting) {
    known.own_remaining = kUnasked;  // for timed calls note_seconds() sets the number
  }
  add_to<std::uint64_t>(known.calls, 1);
  ++calls_;
  slots_[slot_of(key)] = &known;
  return &known;
}

void KnownCalls::tell_unseen(Observe observe) noexcept {
  const MutexLock lock(mutex_);
  for (auto& [name, one] : all_) {
    if (one.timed > 0 && one.calls > one.seen) {
      observe(one.what, one.seconds / static_cast<double>(one.timed), one.calls - std::exchange(one.seen, one.calls));
    }
  }
}

void KnownCalls::forget() noexcept {
  const MutexLock lock(mutex_);
  slots_.fill(nullptr);
  all_.clear();
}

void KnownCalls::tell(drop_in::Ledger& ledger, int communicator_size, const Measured& measured) const {
  const MutexLock lock(mutex_);
  for (const auto& [name, one] : all_) {
    const std::uint64_t calls = peek_at(one.calls);
    const std::uint64_t timed = peek_at(one.timed);
    drop_in::CallTotals totals = drop_in::passed_totals(one.what.function, calls, calls * one.bytes, communicator_size);
    if (timed > 0) {
      totals.seconds = peek_at(one.seconds) / static_cast<double>(timed) * static_cast<double>(calls);
    }
    if (one.choice) {
      totals.measured = measured(*one.choice);
    }
    ledger.add(one.what, totals);
  }
}

}  // namespace gradwire::mpi_preload
