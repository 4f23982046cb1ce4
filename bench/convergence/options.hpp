// Defines the command line of bench_convergence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::convergence {

struct Options {
  std::vector<std::string> parts{"mlp", "large", "accuracy"};
  std::vector<std::string> policies;   // TOML files, or folders of them
  std::size_t seeds = 5;               // number of seeds taken from the list in experiments.cpp
  std::optional<std::uint64_t> steps;  // instead of each part's own
  std::string link = "1Gbit/s,50us";   // emulated, for the time of a step
  bool quick = false;                  // few steps on little data, to check that the program runs
  std::string json, svg;
};

/// Throws bench::CommandLineExit.
[[nodiscard]] Options parse_options(int argc, char** argv);

}  // namespace gradwire::convergence
