// The recorded events of a job's ranks, read from the files that GRADWIRE_TRACE wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "observe/event.hpp"
#include "observe/sources.hpp"
#include "watch/event_file.hpp"

namespace gradwire::watch::timeline {

using observe::EventKind;

/// An event in nanoseconds: by the rank's own clock when it is read, by the common clock after the alignment.
struct Activity {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // `begin` where it took no time
  std::uint64_t bytes = 0;
  std::uint32_t step = 0;
  std::uint32_t bucket = observe::kNoBucket;
  std::uint32_t thread = 0;
  std::int32_t stream = -1;  // index into Recording::streams; -1: none
  EventKind kind = EventKind::error;
  std::uint8_t hop = 0;
  std::uint16_t lane = 0;
  std::uint16_t peer = observe::kNoPeer;
};

/// A session, communicator or table. It is the same for all ranks, which make theirs in the same order.
struct EventSource {
  std::string part;  // "library", "mpi", ...
  observe::Source::Kind kind = observe::Source::Kind::session;
  int number = 0;      // its number among those of its kind
  int world_size = 1;  // number of its ranks
  bool whole = true;   // it has all ranks of the job; otherwise its peers are not known
  bool operator==(const EventSource&) const = default;
};

struct RankLog {
  std::string part;
  int rank = 0;
  int clock = 0;  // index into Recording::clocks
  std::string host;
  std::string file;   // its name
  bool ended = true;  // whether the process ended by itself
  std::uint64_t dropped = 0;
  std::vector<Activity> activities;  // by begin; of equal ones the longest first
};

/// A clock, which several processes may share.
struct Clock {
  std::string name;             // of the host
  std::int64_t since_1970 = 0;  // the number to add for a date, as far as the host knows it
};

struct Recording {
  std::vector<Clock> clocks;
  std::vector<EventSource> streams;
  std::vector<RankLog> ranks;  // by part and rank
  std::vector<std::string> warnings;
  std::uint32_t first_step = 0;  // of an earlier step only the end is recorded
};

struct StepRange {
  std::uint32_t first = 0;
  std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
  bool end_before = false;  // also includes the end of the step before the first, where the first begins
};

/// Converts ticks to nanoseconds of CLOCK_MONOTONIC by all moments at which both were read, with straight lines between
/// them, so that the order stays.
class TickMap {
 public:
  void add(const observe::TimeScale& moment);
  [[nodiscard]] std::int64_t at(std::uint64_t ticks) const;

 private:
  std::vector<observe::TimeScale> moments_;
};

/// Whether the name is that of a file of events, such as "gradwire-library-rank-0.events".
[[nodiscard]] bool is_event_file(const std::string& name);

/// Reads the newest job. Other files are left out with a warning that names them. Error(invalid_argument) where none is
/// left.
[[nodiscard]] Recording read_recording(const std::filesystem::path& folder, StepRange steps = {});

void sort_activities(std::span<Activity> activities);

}  // namespace gradwire::watch::timeline
