#include "watch/served_totals.hpp"

namespace gradwire::watch {

std::optional<int> ServedTotals::rank_of(const Aggregate& aggregate) {
  if (aggregate.home() || aggregate.ranks().empty()) {
    return aggregate.home();
  }
  return 0;
}

void ServedTotals::keep(std::shared_ptr<void> object) {
  static auto* const all = new std::vector<std::shared_ptr<void>>;  // NOLINT(cppcoreguidelines-owning-memory)
  all->push_back(std::move(object));
}

}  // namespace gradwire::watch
