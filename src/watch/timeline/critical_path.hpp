// The critical path of a step: the chain of activities that waited for each other, from the end of its last rank back
// to its begin. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "watch/timeline/messages.hpp"
#include "watch/timeline/recording.hpp"

namespace gradwire::watch::timeline {

enum class Work : std::uint8_t {
  compute,  // the job's own work until it handed over the bucket
  encode,
  reduce,
  decode,
  native,  // copying into the transport's own sum, and out of it
  travel,  // a message from the rank to `peer`
  sum,     // the transport's own sum, from the moment when its last rank came
  wait,    // waiting for an event that was not recorded
  other,   // the time between two of these
};
inline constexpr int kWorks = static_cast<int>(Work::other) + 1;
[[nodiscard]] std::string_view to_string(Work work) noexcept;

struct Segment {
  std::uint32_t rank = 0;  // index into Recording::ranks
  std::int32_t peer = -1;  // for travel: the receiver's rank in the job
  Work work = Work::other;
  std::uint32_t bucket = observe::kNoBucket;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A step of a session, or a call of a communicator.
struct StepPath {
  std::uint32_t step = 0;
  std::uint32_t last_rank = 0;   // index into Recording::ranks: the rank that ended last
  std::int64_t nanoseconds = 0;  // that rank's time since the end of the step before
  std::vector<Segment> path;     // from the end to the begin, without gaps
};

struct RankTimes {
  std::int64_t steps = 0;    // number of steps that the rank ended
  std::int64_t exposed = 0;  // inside finish(), or inside calls
  std::int64_t wait = 0;
  std::int64_t encode = 0;
  std::int64_t reduce = 0;
  std::int64_t decode = 0;
  std::int64_t native = 0;
};

struct StreamPaths {
  int stream = 0;
  bool calls = false;                          // of a communicator
  std::vector<StepPath> steps;                 // by number
  std::vector<std::uint32_t> truncated_steps;  // steps that are left out because the trace lacks their begin
  std::vector<RankTimes> ranks;                // sums over all steps, in the order of Recording::ranks
};

/// The paths of an aligned recording, for each session and communicator of all ranks that ended a step.
/// A step begins at the end of the one before; the first call of a communicator begins with itself.
[[nodiscard]] std::vector<StreamPaths> critical_paths(const Recording& recording, const Matching& matching);

}  // namespace gradwire::watch::timeline
