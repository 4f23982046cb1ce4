// Matches sends with receives. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "watch/timeline/clock_fit.hpp"
#include "watch/timeline/recording.hpp"

namespace gradwire::watch::timeline {

struct Place {
  std::uint32_t rank = 0;   // index into Recording::ranks
  std::uint32_t index = 0;  // index into its activities
  bool operator==(const Place&) const = default;
};

struct Message {
  Place send;
  Place receive;
};

struct Matching {
  std::vector<Message> messages;
  std::uint64_t lonely = 0;   // sends and receives whose other end was not recorded
  std::uint64_t foreign = 0;  // those of communicators of some of the job's ranks, whose peers cannot be named
};

/// Matches by stream, step, bucket, lane, hop and both ranks, which identify a message. If several have the same key,
/// they are matched in order; if one end of these is missing, none of them is matched.
[[nodiscard]] Matching match(const Recording& recording);

/// Converts the times of all activities to clock 0; the result says how exact that is.
struct Alignment {
  std::vector<ClockFit> fits;  // by clock
};
Alignment align(Recording& recording, const Matching& matching);

}  // namespace gradwire::watch::timeline
