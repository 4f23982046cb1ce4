#include "plugins/mpi_preload/buffer_names.hpp"

#include <utility>

namespace gradwire::mpi_preload {

void BufferNames::set(const void* buffer, const std::string& name) {
  old_.erase(buffer);
  if (name.empty()) {
    young_.erase(buffer);
    return;
  }
  if (young_.size() >= kMostNames && !young_.contains(buffer)) {
    old_ = std::exchange(young_, {});
  }
  young_[buffer] = name;
}

std::string BufferNames::of(const void* buffer) {
  if (const auto found = young_.find(buffer); found != young_.end()) {
    return found->second;
  }
  const auto found = old_.find(buffer);
  if (found == old_.end()) {
    return {};
  }
  std::string name = found->second;
  set(buffer, name);
  return name;
}

}  // namespace gradwire::mpi_preload
