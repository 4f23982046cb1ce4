// Activities as slices on tracks of ranks, arrows between them, and counters. Pure functions, which know no file
// format.
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

/// Slices that nest or follow each other, by begin.
struct Track {
  std::size_t rank = 0;  // index into Recording::ranks
  std::string name;      // tracks of one rank and name belong together
  bool receives = false;
  std::vector<Slice> slices;
};

struct Counter {
  struct Value {
    std::int64_t time = 0;
    double value = 0;  // the value from then on
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

/// Spreads slices over as few tracks as possible, so that those of one track nest (if `nests`) or follow each other.
[[nodiscard]] std::vector<std::vector<Slice>> spread(std::vector<Slice> slices, bool nests);

/// Lays out an aligned recording. A matched receive is shown from the moment when its message was sent, or when it was
/// posted if that is later.
[[nodiscard]] Timeline lay_out(const Recording& recording, const Matching& matching);

}  // namespace gradwire::watch::timeline
