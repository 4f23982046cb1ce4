// Command line of bench_ratio.
#pragma once

#include <stdexcept>
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

/// Ends a command line early: help (status 0) or a usage error (status 2), with the text to print.
struct RatioExit : std::runtime_error {
  RatioExit(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};

/// Throws RatioExit.
[[nodiscard]] RatioOptions parse_ratio_options(int argc, char** argv);

}  // namespace gradwire::bench
