// Forecasts what compression would save a job that only observed, from the job's own calls, and only if these show it.
// There are no clocks or ranks here.
//
// The time of the library's calls is modelled as latency + bytes / rate, fitted for each size of communicator. A
// compressed call is modelled with the same latency, the encoded bytes at the same rate, and the codec's work beside
// it, chunk by chunk, as two_shot does it. If real messages of a class were exchanged, they replace the fit of the
// link.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drop_in/observed.hpp"

namespace gradwire::drop_in {

/// Returns the bytes of the frames that a rank sends for a call of so many bytes, over both hops if there are two.
[[nodiscard]] double frame_bytes_of(const ObservedClass& what, double bytes, double ratio);

struct ForecastClass {
  ObservedClass what;
  std::string codec;
  std::uint64_t calls = 0;    // of all ranks that reported theirs
  double bytes = 0;           // of one call
  double passed_seconds = 0;  // the library's time for one call, as measured
  // Fields without a value are unknown.
  std::optional<double> compressed_seconds = {};  // forecast for one call
  std::optional<double> saved_seconds =
      {};  // of one call; 0: compression would be no faster, and auto would pass the call
  std::optional<double> ratio = {};
  std::optional<double> relative_error = {};  // of a rank's own values, not of a sum
  std::optional<double> zeroed_share = {};    // share of the values other than zero that decode to zero
  std::optional<double> small_nmse = {};      // squared error over squared norm of the smaller half
};

struct Forecast {
  std::vector<ForecastClass> classes;  // classes that a codec could compress, those of most bytes first
  /// The sum over the calls of all ranks; no value if it is known for no class.
  std::optional<double> saved_seconds;
};

[[nodiscard]] Forecast forecast_of(const Observed& observed);

}  // namespace gradwire::drop_in
