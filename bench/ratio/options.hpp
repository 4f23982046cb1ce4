// Defines the command line of bench_ratio.
#pragma once

#include <string>
#include <vector>

namespace gradwire::bench {

struct RatioOptions {
  std::string dump;                                                       // gradients; see gradient_dump.hpp
  std::vector<std::string> policies{"bf16", "fp16", "int8", "built-in"};  // codec, "built-in" or FILE.toml
  std::vector<std::string> lab;                                           // JSON of bench_all_reduce on a real link
  int ranks = 4;
  double latency_us = 50;  // of one message, for predictions
  std::string json, svg;
};

/// Throws CommandLineExit.
[[nodiscard]] RatioOptions parse_ratio_options(int argc, char** argv);

}  // namespace gradwire::bench
