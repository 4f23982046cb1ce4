// Tells which accesses are ordered before others. Activities are launches and copies, each the n-th of its stream;
// agents are the blocks of a launch, or a copy. An access is stamped with its agent, thread, how many barriers of block
// and warp lay before it, and its scope.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/ptx/module.hpp"

namespace gradwire::ptx {

/// 64 bits: agent 22, thread 10, epoch of the block 14, epoch of the warp 16, scope 2. Zero is no access.
using Stamp = std::uint64_t;

struct StampFields {
  std::uint32_t agent, thread, block_epoch, warp_epoch;
  Scope scope;  // none: a weak access
};
[[nodiscard]] Stamp make_stamp(const StampFields& fields);
[[nodiscard]] inline StampFields fields_of(Stamp stamp) {
  return {static_cast<std::uint32_t>(stamp >> 42), static_cast<std::uint32_t>(stamp >> 32 & 0x3FF),
          static_cast<std::uint32_t>(stamp >> 18 & 0x3FFF), static_cast<std::uint32_t>(stamp >> 2 & 0xFFFF),
          static_cast<Scope>(stamp & 3)};
}

/// How many activities of each stream are known to have ended: a vector clock.
using Clock = std::vector<std::uint64_t>;
void join(Clock& clock, const Clock& other);

/// A thread knows this of another agent after an acquire: all its accesses before `block_epoch`, and in that epoch
/// those of `threads`, each up to the warp epoch given.
struct Known {
  std::uint32_t block_epoch = 0;
  std::map<std::uint32_t, std::uint32_t> threads;  // by thread: the last epoch of its warp that is known
};
class Knowledge {
 public:
  void add(std::uint32_t agent, std::uint32_t block_epoch, std::uint32_t thread, std::uint32_t warp_epoch);
  void add(const Knowledge& other);
  [[nodiscard]] bool covers(const StampFields& fields) const;
  [[nodiscard]] bool empty() const { return agents_.empty(); }

 private:
  std::map<std::uint32_t, Known> agents_;
};

class Order {
 public:
  /// Adds an activity that follows those in `clock`, and returns its number; `clock` then includes it.
  std::uint32_t add_activity(std::uint32_t stream, Clock& clock, std::string name);
  std::uint32_t add_agent(std::uint32_t activity, std::uint32_t block);
  /// Whether the activity of `agent` ended before `activity` began.
  [[nodiscard]] bool ended_before(std::uint32_t agent, std::uint32_t activity) const;
  [[nodiscard]] std::string name_of(Stamp stamp) const;
  [[nodiscard]] std::uint32_t activity_of(std::uint32_t agent) const { return agents_[agent].activity; }

 private:
  struct Activity {
    std::uint32_t stream;
    std::uint64_t number;
    Clock before;
    std::string name;
  };
  struct Agent {
    std::uint32_t activity, block;
  };
  std::vector<Activity> activities_{{0, 0, {}, "none"}};
  std::vector<Agent> agents_{{0, 0}};
  std::vector<std::uint64_t> counts_;  // of activities, by stream
};

/// Describes one thread at one access.
struct Viewer {
  StampFields fields;
  std::uint32_t activity = 0;
  const Order* order = nullptr;
  const Knowledge* block = nullptr;   // null for copies
  const Knowledge* thread = nullptr;  // null if it has none

  [[nodiscard]] bool ordered(Stamp earlier) const;
  /// Whether the scopes of both accesses include the other's thread, so that they are no race. Two grids may be on two
  /// GPUs.
  [[nodiscard]] bool both_strong(Stamp earlier) const;
};

}  // namespace gradwire::ptx
