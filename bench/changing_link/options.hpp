// Defines the command line of bench_changing_link.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::changing_link {

struct Options {
  std::string link = "100Mbit/s until 12s, 1Gbit/s until 18s, 250Mbit/s until 25s, 1Gbit/s; noise 30% per 100ms seed 7";
  int ranks = 2;
  std::uint64_t steps = 2000;
  int tensors = 8;
  std::uint64_t elements = 64 << 10;  // of each tensor
  std::string compute = "10ms";       // of a backward pass
  std::string bucket = "512KiB";
  std::vector<std::string> allow{"bf16", "int8", "int4"};  // best quality first; uncompressed is always a candidate
  std::vector<std::string> players;                        // empty: all
  bool quick = false;
  std::string json, svg, markdown;
};

/// Throws bench::CommandLineExit.
[[nodiscard]] Options parse_options(int argc, char** argv);

}  // namespace gradwire::changing_link
