// What compression would save a job that only observed: computed from its own calls, and said only where these show it.
// No clocks, no ranks.
//
// The time of the library's calls is taken for latency + bytes / rate, fitted for each size of communicator. A
// compressed call is taken for the same latency, the encoded bytes at the same rate, and the codec's work beside it,
// chunk by chunk, as two_shot does it. Where real messages of a class were exchanged, these stand for the link.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drop_in/observed.hpp"

namespace gradwire::drop_in {

/// Bytes of the frames that a rank sends for a call of so many bytes: both hops, where there are two.
[[nodiscard]] double frame_bytes_of(const ObservedClass& what, double bytes, double ratio);

struct ForecastClass {
  ObservedClass what;
  std::string codec;
  std::uint64_t calls = 0;    // of all ranks that told theirs
  double bytes = 0;           // of one call
  double passed_seconds = 0;  // that the library takes for one call, as it was timed
  // What is not known is not said.
  std::optional<double> compressed_seconds = {};  // forecast for one call
  std::optional<double> saved_seconds = {};       // of one call; 0: it would be no faster, and auto would pass it
  std::optional<double> ratio = {};
  std::optional<double> relative_error = {};  // of a rank's own values, not of a sum
  std::optional<double> zeroed_share = {};    // of the values that are not zero, those that decode to zero
  std::optional<double> small_nmse = {};      // of the smaller half: squared error over squared norm
};

struct Forecast {
  std::vector<ForecastClass> classes;  // that a codec could compress, those of most bytes first
  /// Summed over the calls of all ranks; none where it is known of no class.
  std::optional<double> saved_seconds;
};

[[nodiscard]] Forecast forecast_of(const Observed& observed);

}  // namespace gradwire::drop_in
