// The processes that take part, and what a change of them is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gradwire::membership {

/// A process. An id is given once and never again: a rank that joins later gets a new one.
using Id = std::uint32_t;

/// The processes that share steps. Each change makes the next epoch; messages from an older one no longer count.
struct World {
  std::uint32_t epoch = 0;
  std::vector<Id> members;  // ascending; the place of a process is its rank

  [[nodiscard]] bool operator==(const World&) const = default;
};

/// Returns the rank of `who`; -1 if it is not in the world.
[[nodiscard]] inline int rank_in(const World& world, Id who) {
  const auto at = std::ranges::lower_bound(world.members, who);
  return at != world.members.end() && *at == who ? static_cast<int>(at - world.members.begin()) : -1;
}

/// A process that has ended for certain, and how far it had come.
struct ProcessEnd {
  Id who = 0;
  std::uint32_t epoch = 0;  // the last epoch that it entered; 0: none, as far as is known
  std::uint64_t step = 0;   // the last step of which it said that it counts

  [[nodiscard]] bool operator==(const ProcessEnd&) const = default;
};

/// What the survivors agree on: the next world, and the last step that all of its members deliver. All of them undo
/// later steps that are under way.
struct Decision {
  World world;
  std::uint64_t delivered = 0;

  [[nodiscard]] bool operator==(const Decision&) const = default;
};

}  // namespace gradwire::membership
