// Activities as slices on tracks of ranks, arrows between them, and counters. Pure; it knows no file format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "watch/timeline/messages.hpp"
#include "watch/timeline/recording.hpp"

namespace gradwire::watch::timeline {

struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string name = {};
  std::uint64_t bytes = 0;
  std::uint32_t step = 0;
  std::uint32_t bucket = observe::kNoBucket;
  std::int32_t lane = -1;
  std::int32_t peer = -1;
  bool has_step = false;
  std::uint64_t flow = 0;  // the same at both ends of an arrow; 0: none
};

/// Slices that lie in each other or beside each other, by begin.
struct Track {
  std::size_t rank = 0;  // in Recording::ranks
  std::string name;      // tracks of one rank and name belong together
  bool receives = false;
  std::vector<Slice> slices;
};

struct Counter {
  struct Value {
    std::int64_t time = 0;
    double value = 0;  // from then on
  };
  std::size_t rank = 0;
  std::string name = {};
  bool is_bytes = false;
  std::vector<Value> values;
};

struct Timeline {
  std::vector<Track> tracks;
  std::vector<Counter> counters;
};

/// Spreads slices over as few tracks as it takes from the first on, so that those of each lie in each other (where
/// `nests`) or beside each other.
[[nodiscard]] std::vector<std::vector<Slice>> spread(std::vector<Slice> slices, bool nests);

/// Of an aligned recording. A matched receive is shown from when its message was sent, or from when it was asked for if
/// that is later.
[[nodiscard]] Timeline lay_out(const Recording& recording, const Matching& matching);

}  // namespace gradwire::watch::timeline
