// `gradwire run --compare`: a job without gradwire, then the same job with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "cli/commands.hpp"

namespace gradwire::cli {

struct MeasuredRun {
  int status = 0;  // of the job
  std::chrono::nanoseconds time{0};
  std::uint64_t loopback_bytes = 0;  // sent meanwhile by all processes of the network namespace
  // Of calls that gradwire handles, as the ranks counted them: what an uncompressed all-reduce sends, and what was
  // sent.
  std::uint64_t dense_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::optional<std::uint64_t> compressed_calls = std::nullopt;  // by the drop-in; none: the ranks left no report
  bool has_session = false;                                      // the job itself uses the library, in both runs
};

/// Measures a run from its construction to stop().
class Stopwatch {
 public:
  Stopwatch();
  [[nodiscard]] MeasuredRun stop(int status) const;

 private:
  std::chrono::steady_clock::time_point started_;
  std::uint64_t loopback_bytes_;
};

/// Refuses options that make no sense beside --compare: Error(invalid_argument).
void check_comparison(const RunOptions& options);

/// Runs the job twice and prints time, bytes and ratios. `run` is told whether to run it without gradwire. `link`: the
/// emulated link that both runs use; without one, bytes are those that the ranks counted. Returns the status of the
/// first run that fails, else 0.
int compare(const std::function<MeasuredRun(bool without)>& run, const std::optional<std::string>& link,
            std::ostream& out);

}  // namespace gradwire::cli
