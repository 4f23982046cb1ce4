#include "table/replica_ring.hpp"

#include <algorithm>
#include <set>

namespace gradwire::table {
namespace {

// The next rank after `place`, whose own rank is chosen[0], that is not chosen yet; preferably on a node without a
// chosen rank, if there is one.
int next_holder(const HashRing& ring, std::size_t place, std::span<const int> chosen,
                std::span<const std::uint32_t> nodes, std::size_t number_of_nodes) {
  std::set<std::uint32_t> taken;
  for (const int rank : chosen) {
    taken.insert(nodes.empty() ? 0 : nodes[static_cast<std::size_t>(rank)]);
  }
  int next = -1;
  for (std::size_t i = 1; i < ring.places(); ++i) {
    const int rank = ring.rank_at((place + i) % ring.places());
    if (std::ranges::find(chosen, rank) != chosen.end()) {
      continue;
    }
    if (taken.size() == number_of_nodes || !taken.contains(nodes[static_cast<std::size_t>(rank)])) {
      return rank;
    }
    next = next < 0 ? rank : next;
  }
  return next;
}

// Whether the ranks outside the largest node can hold the second copies of its rows with at most two for each of their
// own rows. Otherwise a single rank outside could have to hold the whole table.
bool spread_evenly(std::span<const std::uint32_t> nodes) {
  std::ptrdiff_t largest = 0;
  for (const std::uint32_t node : nodes) {
    largest = std::max(largest, std::ranges::count(nodes, node));
  }
  return largest <= 2 * (std::ssize(nodes) - largest);
}

}  // namespace

ReplicaRing::ReplicaRing(int ranks) : ring_(ranks), copies_(1) {
  for (std::size_t place = 0; place < ring_.places(); ++place) {
    holders_.push_back(ring_.rank_at(place));
  }
}

ReplicaRing::ReplicaRing(std::span<const std::uint32_t> keys, std::span<const std::uint32_t> nodes,
                         std::uint32_t copies)
    : ring_(keys), copies_(std::min<std::size_t>(copies, keys.size())) {
  if (!spread_evenly(nodes)) {
    nodes = {};
  }
  const std::size_t number_of_nodes = nodes.empty() ? 1 : std::set<std::uint32_t>(nodes.begin(), nodes.end()).size();
  holders_.reserve(ring_.places() * copies_);
  for (std::size_t place = 0; place < ring_.places(); ++place) {
    std::vector<int> chosen{ring_.rank_at(place)};
    while (chosen.size() < copies_) {
      chosen.push_back(next_holder(ring_, place, chosen, nodes, number_of_nodes));
    }
    holders_.insert(holders_.end(), chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(copies_));
  }
}

bool ReplicaRing::is_holder(std::uint64_t id, int rank) const noexcept {
  if (copies_ == 1) {
    return first_holder(id) == rank;
  }
  const std::span<const int> all = holders(id);
  return std::ranges::find(all, rank) != all.end();
}

double ReplicaRing::lost(const std::vector<bool>& left) const {
  std::size_t gone = 0;
  for (std::size_t place = 0; place < ring_.places(); ++place) {
    gone += std::ranges::none_of(at(place), [&](int rank) { return left[static_cast<std::size_t>(rank)]; }) ? 1 : 0;
  }
  return ring_.places() == 0 ? 0 : static_cast<double>(gone) / static_cast<double>(ring_.places());
}

}  // namespace gradwire::table
