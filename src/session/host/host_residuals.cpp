#include "session/host/host_residuals.hpp"

#include <map>
#include <utility>

namespace gradwire::session {
namespace {

// Calls body(residual) for the ranges of a key. An entry without values counts: see BucketResiduals::held.
template <class Body>
void for_each_residual(const exchange::ResidualKey& key, std::vector<exchange::ResidualStore::Range> ranges,
                       Body body) {
  if (ranges.empty()) {
    ranges.emplace_back();
  }
  for (exchange::ResidualStore::Range& range : ranges) {
    body(SavedResidual{key, std::move(range)});
  }
}

}  // namespace

std::vector<SavedResidual> HostResiduals::save_residuals(const plan::Plan& /*plan*/) {
  store_.reserve_copy();  // a disk without room is an error before anything is copied
  std::vector<SavedResidual> saved;
  for (const auto& [key, ranges] : store_.entries()) {
    for_each_residual(key, ranges, [&](SavedResidual residual) { saved.push_back(std::move(residual)); });
  }
  return saved;
}

void HostResiduals::hand_over(const plan::Plan& /*plan*/, const std::function<void(const SavedResidual&)>& body) {
  std::map<exchange::ResidualKey, std::vector<exchange::ResidualStore::Range>> entries = store_.take_entries();
  while (!entries.empty()) {
    auto entry = entries.extract(entries.begin());
    for_each_residual(entry.key(), std::move(entry.mapped()), body);
  }
}

}  // namespace gradwire::session
