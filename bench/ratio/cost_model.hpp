// How long an all-reduce takes on a link: predicted by a simple model, or taken from measurements on a real one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::bench {

/// What one all-reduce costs apart from the link.
struct CallCost {
  double bytes = 0;           // of the message, uncompressed
  double wire_bytes = 0;      // sent by one rank, counted
  double encode_seconds = 0;  // to encode the whole message once, one thread
  double decode_seconds = 0;  // to decode and add it once, one thread
};

struct CostModel {
  int ranks = 4;
  double latency_seconds = 50e-6;

  /// A perfect uncompressed ring: 2(P-1) a + 2(P-1)/P bytes / rate. Adding is free, so the bar is high.
  [[nodiscard]] double dense_seconds(double bytes, double bytes_per_second) const;
  /// two_shot, pipelined: 2(P-1) a + the larger of wire and codec time + one chunk's fill. A rank encodes the message
  /// once over both hops, decodes it once, and adds (P-1)/P of it as owner: 3 - 1/P passes.
  [[nodiscard]] double compressed_seconds(const CallCost& call, double bytes_per_second) const;
};

/// Measured times on one real link, from the JSON of bench_all_reduce.
class LabTimes {
 public:
  /// Throws std::runtime_error that names the file: not such a report, an emulated link, another number of ranks.
  LabTimes(const std::string& file, int ranks);

  [[nodiscard]] double bytes_per_second() const noexcept { return bytes_per_second_; }
  /// Dense time / codec time for a message of `bytes`, each between neighbouring measured sizes by a straight line;
  /// dense is the fastest uncompressed row, of any library. Empty outside the measured sizes or without such a codec.
  [[nodiscard]] std::optional<double> speedup(const std::string& codec, double bytes) const;

 private:
  using Times = std::map<double, double>;  // message bytes -> median seconds
  [[nodiscard]] static std::optional<double> time_of(const Times& times, double bytes);
  double bytes_per_second_ = 0;
  Times dense_;
  std::map<std::string, Times> codecs_;
};

}  // namespace gradwire::bench
