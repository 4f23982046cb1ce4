// Which send is the other end of which receive. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "watch/timeline/clocks.hpp"
#include "watch/timeline/recording.hpp"

namespace gradwire::watch::timeline {

struct Place {
  std::uint32_t rank = 0;   // in Recording::ranks
  std::uint32_t index = 0;  // in its activities
  bool operator==(const Place&) const = default;
};

struct Message {
  Place send;
  Place receive;
};

struct Matching {
  std::vector<Message> messages;
  std::uint64_t lonely = 0;   // sends and receives whose other end nobody recorded
  std::uint64_t foreign = 0;  // those of communicators of some ranks of the job: their peers have no name in it
};

/// By stream, step, bucket, lane, hop and both ranks, which is once a message; where it comes more than once, as in
/// order. Where one end is missing of those, none is matched.
[[nodiscard]] Matching match(const Recording& recording);

/// Turns the times of all activities into those of clock 0, and says how well.
struct Alignment {
  std::vector<ClockFit> fits;  // by clock
};
Alignment align(Recording& recording, const Matching& matching);

}  // namespace gradwire::watch::timeline
