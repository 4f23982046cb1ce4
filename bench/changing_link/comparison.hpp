// The players of bench_changing_link, and the comparison of their runs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/changing_link/options.hpp"
#include "bench/changing_link/play.hpp"
#include "gradwire/emulation.hpp"

namespace gradwire::changing_link {

/// Mean and median of the steps that began in one phase of the schedule; NaN if there were none.
struct PhaseTime {
  std::size_t steps = 0;
  double mean_seconds = 0;
  double median_seconds = 0;
};

[[nodiscard]] std::vector<PhaseTime> phase_times(const LinkSchedule& link, const std::vector<Step>& steps);

/// Returns for each phase the index of the trace whose steps were fastest in it; if none has enough steps in a phase,
/// that of the previous phase.
[[nodiscard]] std::vector<std::size_t> best_by_phase(const LinkSchedule& link, const std::vector<Trace>& fixed);

/// Returns the mean rate of the link between two times, in bytes per second, for a plot.
[[nodiscard]] double mean_rate(const LinkSchedule& link, double from_seconds, double to_seconds);

struct Comparison {
  Setting setting;
  std::vector<std::string> levels;  // dense and the allowed codecs
  std::vector<Trace> traces;
  /// The codec that the clairvoyant used in each phase; empty if it did not play.
  std::vector<std::string> planned;

  [[nodiscard]] const Trace* find(const std::string& name) const;
};

/// Plays one after the other: fixed codecs, the clairvoyant, which uses their results, auto, greedy, auto again, the
/// clairvoyant again.
[[nodiscard]] Comparison compare(const Options& options);

}  // namespace gradwire::changing_link
