#include "plan/residual_store.hpp"

namespace gradwire::plan {

void ResidualStore::keep(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  kept_.insert_or_assign(key, Range{offset, std::vector<float>(count)});
}

float* ResidualStore::slice(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) {
    return nullptr;
  }
  Range& range = found->second;
  const std::uint64_t skipped = offset - range.offset;
  if (offset < range.offset || skipped > range.values.size() || count > range.values.size() - skipped) {
    return nullptr;
  }
  return range.values.data() + skipped;
}

}  // namespace gradwire::plan
