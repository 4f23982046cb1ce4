// Who events are of. A process may hold several ranks as threads, and several sessions of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/statistics.hpp"
#include "observe/event.hpp"
#include "observe/slow_ranks.hpp"

namespace gradwire::observe {

struct Source {
  enum class Kind : std::uint8_t { session, communicator, table, drop_in };
  Kind kind = Kind::session;
  int rank = 0;
  int world_size = 1;
  bool shares_process =
      false;  // with other ranks of its world: each is then a rank of its own, whatever the process is
};

/// A world of one thread says nothing of which rank the process is.
[[nodiscard]] inline bool is_alone(const Source& source) noexcept {
  return source.shares_process && source.world_size == 1;
}

/// A number for it; the last of them stands for all that come when there are no more. A process that has a number in
/// its job (base/process_number.hpp) has that for its rank, since its rank may change. Any thread.
[[nodiscard]] SourceId add_source(const Source& source);
[[nodiscard]] std::optional<Source> source_of(SourceId id);
/// Of this process; 0: it has none. In a child that forked off they go on from its parent's.
[[nodiscard]] SourceId first_source();

/// What the comparison of ranks said last of this one.
struct SlowState {
  SlowCause cause = SlowCause::none;  // none while it is well, whatever the latest interval says
  Diagnosis latest = {};
  std::uint64_t comparisons = 0;
  double seconds = 0;  // that they took the slowest rank, but for what follows the latest gather
};

/// What a source knows besides its counts. What it does not know is empty.
struct Knowledge {
  /// Of a group, as sampled last: the mean over its buckets.
  struct Health {
    std::string group;
    std::string codec;          // as SessionStatistics::Group
    double nmse = 0;            // |dropped|^2 / |encoded|^2 of an encoding
    double residual_ratio = 0;  // |residual| / |gradient|, of error feedback
  };
  struct Memory {
    std::uint64_t residual_bytes = 0;
    std::uint64_t frame_bytes = 0;  // of the pool of frame buffers, at its peak
  };
  struct Rows {
    std::uint64_t pulled = 0;
    std::uint64_t received = 0;      // of these: values came from another rank
    std::uint64_t ages = 0;          // of all pulled, in clocks, summed
    std::uint64_t greatest_age = 0;  // in clocks
  };
  std::optional<LinkEstimate> link = {};
  std::vector<Health> health = {};
  std::optional<Memory> memory = {};
  std::optional<Rows> rows = {};
};

/// The latest counts of a source, for whoever reads events; `last`: no more follow, and the source may be forgotten.
/// Nothing happens where nothing is recorded.
struct Snapshot {
  SourceId source = 0;
  SessionStatistics statistics = {};
  std::optional<SlowState> slow = {};  // none: ranks are not compared
  Knowledge knowledge = {};
  bool last = false;
};
void publish(Snapshot snapshot);

}  // namespace gradwire::observe
