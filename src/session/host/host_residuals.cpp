#include "session/host/host_residuals.hpp"

namespace gradwire::session {

std::vector<SavedResidual> HostResiduals::save_residuals(const plan::Plan& /*plan*/) {
  std::vector<SavedResidual> saved;
  for (const auto& [key, ranges] : store_.entries()) {
    for (const exchange::ResidualStore::Range& range : ranges) {
      saved.push_back({key, range});
    }
    if (ranges.empty()) {
      saved.push_back({key, {}});  // an entry without values counts: see BucketResiduals::held
    }
  }
  return saved;
}

}  // namespace gradwire::session
