// StepWatch measures the steps of a rank: how long each took, how much of that was communication, and what it sent.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradwire/statistics.hpp"

namespace gradwire::session {

/// The measurements of one step on one rank.
struct StepSeen {
  double step_seconds = 0;            // from the end of the previous step to the end of this one
  double busy_seconds = 0;            // time in which a bucket was under way; 0 if not all of it was seen
  double wait_seconds = 0;            // the part of it that waited for the transport, with nothing to compute
  double bytes_sent = 0;              // over the network, by all ranks of the node if each sent as much as this one
  double exposed_seconds = 0;         // time in finish() until the last result had arrived
  double micro_steps = 1;             // backward passes
  std::vector<double> ready_seconds;  // by bucket, from the end of the previous step
};

class StepWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void begin(std::size_t buckets, Time now) {
    seen_.busy_seconds = 0;
    seen_.ready_seconds.assign(buckets, 0);
    begun_ = now;
  }
  void bucket_ready(std::uint32_t bucket, Time now) { seen_.ready_seconds[bucket] = seconds(begun_, now); }
  void all_ready(Time now) { std::fill(seen_.ready_seconds.begin(), seen_.ready_seconds.end(), seconds(begun_, now)); }
  void busy(Time from, Time to) { seen_.busy_seconds += seconds(from, to); }
  /// Ends a step. `totals` are the runner's totals so far. `ranks` is the number of ranks on a node; if it is unset,
  /// bytes_sent counts what this rank sent, to its own node, too. `saw_all` says that the calls of busy() cover all
  /// communication of the step.
  void end(Time now, double exposed, const Statistics& totals, std::optional<std::size_t> ranks,
           std::uint32_t micro_steps, bool saw_all) {
    last_ = seen_;
    last_.busy_seconds = saw_all ? seen_.busy_seconds : 0;
    last_.step_seconds = seconds(begun_, now);
    last_.exposed_seconds = exposed;
    last_.micro_steps = micro_steps;
    last_.bytes_sent = ranks
                           ? static_cast<double>(totals.bytes_inter - before_.bytes_inter) * static_cast<double>(*ranks)
                           : static_cast<double>(totals.bytes_sent - before_.bytes_sent);
    last_.wait_seconds = totals.wire_seconds - before_.wire_seconds;
    before_ = totals;
  }
  /// The last step for which end() was called.
  [[nodiscard]] const StepSeen& last() const noexcept { return last_; }

  void count(double exposed) {
    ++steps_;
    exposed_seconds_ += exposed;
  }
  // These two count since the last reset_counts().
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_ - steps_before_; }
  [[nodiscard]] double exposed_seconds() const noexcept { return exposed_seconds_ - exposed_before_; }
  void reset_counts() {
    steps_before_ = steps_;
    exposed_before_ = exposed_seconds_;
  }
  // These two count all steps so far, regardless of resets.
  [[nodiscard]] std::uint64_t steps_ever() const noexcept { return steps_; }
  [[nodiscard]] double exposed_ever() const noexcept { return exposed_seconds_; }

 private:
  static double seconds(Time from, Time to) { return std::chrono::duration<double>(to - from).count(); }

  StepSeen seen_;  // this step so far
  StepSeen last_;
  Time begun_;
  Statistics before_;  // the runner's totals when this step began
  std::uint64_t steps_ = 0, steps_before_ = 0;
  double exposed_seconds_ = 0, exposed_before_ = 0;
};

}  // namespace gradwire::session
