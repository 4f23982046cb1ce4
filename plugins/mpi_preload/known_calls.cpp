#include "plugins/mpi_preload/known_calls.hpp"

namespace gradwire::mpi_preload {

KnownCall* KnownCalls::remember(const CallKey& key, std::uint64_t bytes, const drop_in::Router::Route& route) {
  const std::pair name{key, route.what.reason};
  auto found = all_.find(name);
  if (found == all_.end()) {
    if (all_.size() >= kMost) {
      return nullptr;
    }
    found = all_.try_emplace(name).first;
    KnownCall& made = found->second;
    made = {.key = key, .what = route.what, .choice = route.choice, .bytes = bytes};
    made.left = route.turn.left != nullptr ? route.turn.left : &made.own_left;
  }
  KnownCall& known = found->second;
  if (route.lasting) {
    known.own_left = kUnasked;
  }
  ++known.calls;
  ++calls_;
  slots_[slot_of(key)] = &known;
  return &known;
}

void KnownCalls::tell(drop_in::Ledger& ledger, int communicator_size, const Measured& measured) const {
  for (const auto& [name, one] : all_) {
    drop_in::CallTotals totals =
        drop_in::passed_totals(one.what.function, one.calls, one.calls * one.bytes, communicator_size);
    if (one.timed > 0) {
      totals.seconds = one.seconds / static_cast<double>(one.timed) * static_cast<double>(one.calls);
    }
    if (one.choice) {
      totals.measured = measured(*one.choice);
    }
    ledger.add(one.what, totals);
  }
}

}  // namespace gradwire::mpi_preload
