// Defines the command line of bench_all_reduce.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/support/placement.hpp"

namespace gradwire::bench {

struct Options {
  std::vector<std::string> codecs{"int8", "bf16", "exact"};
  std::vector<std::string> collectives{"two_shot"};
  std::uint64_t min_bytes = 1ULL << 20;
  std::uint64_t max_bytes = 64ULL << 20;
  std::string error_feedback = "auto", second_hop;
  std::string intra;                 // codec inside nodes; empty: the library's default
  std::uint32_t ranks_per_node = 0;  // 0: as MPI reports
  double factor = 4;
  int iterations = 20;
  int warmup = 2;
  std::uint64_t chunk_bytes = 0;  // 0: the library's default
  std::string link;               // emulated link; empty: the real one
  double link_rate = NAN;         // bytes per second of a real link; NaN: not known
  std::string interface;          // network device, for Gloo and for counting what leaves the host
  bool baseline = false;
  bool predict = false;
  double ranks_per_core = NAN;               // for the prediction; NaN: all ranks on this machine's cores
  Placement placement = Placement::aligned;  // of input and output; never in place, where errors could not be checked
  std::string json, markdown;

  /// Returns the message sizes, each a multiple of an element.
  [[nodiscard]] std::vector<std::uint64_t> sizes() const;
};

/// Throws CommandLineExit.
[[nodiscard]] Options parse_options(int argc, char** argv);

}  // namespace gradwire::bench
