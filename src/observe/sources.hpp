// The sources of events. A process may hold several ranks as threads, and several sessions of each.
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
  bool shares_process = false;  // other ranks of its world are in the same process: then each source has its own rank
};

/// Whether the source is a world of one thread, which says nothing about the process's rank.
[[nodiscard]] inline bool is_alone(const Source& source) noexcept {
  return source.shares_process && source.world_size == 1;
}

/// Adds a source and returns its number; when numbers run out, the last one stands for all later sources. A process
/// with a number in its job (base/process_number.hpp) uses that as its rank, since its rank may change. Any thread may
/// call this.
[[nodiscard]] SourceId add_source(const Source& source);
[[nodiscard]] std::optional<Source> source_of(SourceId id);
/// The first source of this process; 0: it has none. In a forked child numbers go on from its parent's.
[[nodiscard]] SourceId first_source();

/// The latest result of the comparison of ranks for this one.
struct SlowState {
  SlowCause cause = SlowCause::none;  // none while the rank counts as well, even if the latest interval was slow
  Diagnosis latest = {};
  std::uint64_t comparisons = 0;
  double seconds = 0;  // time of the comparisons on the slowest rank, without the part after the latest gather
};

/// A source's knowledge besides its counts. Unknown parts are empty.
struct Knowledge {
  /// The latest sample of a group: the mean over its buckets.
  struct Health {
    std::string group;
    std::string codec;          // see SessionStatistics::Group
    double nmse = 0;            // |dropped|^2 / |encoded|^2 of an encoding
    double residual_ratio = 0;  // |residual| / |gradient|, of error feedback
  };
  /// A group that is in a warm-up, and the codec of it that is in use.
  struct WarmUp {
    std::string group;
    std::string codec;  // see SessionStatistics::Group
    std::string in_use;
  };
  struct Memory {
    std::uint64_t residual_bytes = 0;
    std::uint64_t frame_bytes = 0;  // peak size of the pool of frame buffers
  };
  struct Rows {
    std::uint64_t pulled = 0;
    std::uint64_t received = 0;      // of these: values came from another rank
    std::uint64_t ages = 0;          // sum of the ages of all pulled rows, in clocks
    std::uint64_t greatest_age = 0;  // in clocks
  };
  std::optional<LinkEstimate> link = {};
  std::vector<Health> health = {};
  std::vector<WarmUp> warm_ups = {};
  std::vector<std::pair<std::string, double>> notes = {};  // numbers that the job told, by name
  std::optional<Memory> memory = {};
  std::optional<Rows> rows = {};
};

/// The latest counts of a source, for the readers of events; `last`: no more follow, and the source may be dropped.
/// Publishing does nothing while recording is off.
struct Snapshot {
  SourceId source = 0;
  SessionStatistics statistics = {};
  std::optional<SlowState> slow = {};  // none: ranks are not compared
  Knowledge knowledge = {};
  bool last = false;
};
void publish(Snapshot snapshot);

}  // namespace gradwire::observe
