#include "watch/totals.hpp"

#include <utility>

#include "watch/host.hpp"
#include "watch/metrics_page.hpp"

namespace gradwire::watch {

Totals::Totals(observe::WatchedProcess process)
    : process_(std::move(process)),
      host_(host_name()),
      aggregate_([](observe::SourceId id) { return observe::source_of(id); }) {
  if (process_.replaced) {
    aggregate_.leave_out_calls_of_communicators();
  }
}

void Totals::add(const observe::Round& round) {
  const MutexLock lock(known_);
  aggregate_.add(round, process_.rank, process_.world_size);
  reader_ = {round.clock, round.recorded, round.dropped, round.collector_seconds, round.ring_bytes, round.last, host_};
  now_ = round.scale.nanoseconds;
}

std::vector<ReplacedCalls> Totals::replaced() {
  const MutexLock lock(calls_);
  return process_.replaced ? process_.replaced() : std::vector<ReplacedCalls>();
}

std::vector<Family> Totals::page() {
  const std::vector<ReplacedCalls> calls = replaced();
  const MutexLock lock(known_);
  return page_of(aggregate_, reader_, calls, process_.part, process_.job);
}

void TotalsSink::take(const observe::Round& round) {
  totals_->add(round);
  std::erase_if(subscribers_, [&](const std::unique_ptr<Subscriber>& subscriber) {
    try {
      subscriber->take(*totals_);
      return subscriber->done();
    } catch (...) {
      observe::tell_failure();
      return true;
    }
  });
}

}  // namespace gradwire::watch
