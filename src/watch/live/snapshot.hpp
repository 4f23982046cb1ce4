// The values in one rank's file, and their rates from one version of the file to the next. Pure functions.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "watch/live/prometheus_text.hpp"

namespace gradwire::watch::live {

/// Counters, which only grow while a job runs.
struct RankCounters {
  double events = 0;
  double steps = 0;         // from the end of one step to the end of the next, so without the first one
  double step_seconds = 0;  // duration of these steps
  double waits = 0;         // steps whose exposed communication was measured: all
  double exposed_seconds = 0;
  double steps_published = 0;  // the session's own number, published with its bytes
  double calls = 0;
  double bytes_sent = 0;
  double bytes_intra = 0;
  double bytes_inter = 0;
  double bytes_uncompressed = 0;
  double replaced_calls = 0;
  double replaced_seconds = 0;
  double errors = 0;
  double dropped = 0;
};

/// All of them.
inline constexpr std::array<double RankCounters::*, 15> kCounters{&RankCounters::events,
                                                                  &RankCounters::steps,
                                                                  &RankCounters::step_seconds,
                                                                  &RankCounters::waits,
                                                                  &RankCounters::exposed_seconds,
                                                                  &RankCounters::steps_published,
                                                                  &RankCounters::calls,
                                                                  &RankCounters::bytes_sent,
                                                                  &RankCounters::bytes_intra,
                                                                  &RankCounters::bytes_inter,
                                                                  &RankCounters::bytes_uncompressed,
                                                                  &RankCounters::replaced_calls,
                                                                  &RankCounters::replaced_seconds,
                                                                  &RankCounters::errors,
                                                                  &RankCounters::dropped};

using RankName = std::pair<std::string, int>;  // part and rank, which name a file of a job

struct RankValues {
  RankName name;
  std::string job = {};  // its name; empty: a version of gradwire wrote the file whose jobs have none
  double written = 0;    // when it was written, in seconds since 1970
  int world_size = 1;
  std::string emulated_link = {};  // that the job runs over, such as "1Gbit/s"; empty: none
  bool ended = false;
  RankCounters counters;
  std::string codec;         // in use, most bytes first: "int8", "auto:int4", "int8,exact"
  bool has_tiers = false;    // whether bytes are known by tier
  std::optional<bool> slow;  // the ranks' own result (gradwire_rank_slow), where the file has it
};

/// Error(invalid_argument) for samples that are not those of one rank.
[[nodiscard]] RankValues rank_values(std::span<const TextSample> samples, double written);

/// Unknown rates are absent.
struct Rates {
  double seconds = 0;  // the time that they cover; 0: all since the job's start
  std::optional<double> steps;
  std::optional<double> calls;    // of a drop-in
  std::optional<double> exposed;  // share of the time
  std::optional<double> sent;     // bytes, and by tier
  std::optional<double> intra;
  std::optional<double> inter;
  std::optional<double> ratio;
};

/// Whether `now` is of another job than `before`: that one ended, or a counter fell.
[[nodiscard]] bool is_another_job(const RankValues& before, const RankValues& now);

/// `before` is an older version of the same file, or null: then rates are means since the start. They are never
/// negative.
[[nodiscard]] Rates rates_between(const RankValues* before, const RankValues& now);

/// The versions of the files of the last minutes. A file changes every 5 s, and a step may take longer than that, so
/// rates are from the newest version since which a step ended.
class RateTracker {
 public:
  /// Takes the present ranks, and drops all others.
  void take(std::span<const RankValues> ranks);
  [[nodiscard]] Rates rates(const RankName& rank) const;
  /// Whether no step has ended for 10 s at least, and for three times as long as steps take.
  [[nodiscard]] bool is_stalled(const RankName& rank) const;

 private:
  std::map<RankName, std::deque<RankValues>> versions_;  // oldest first
};

}  // namespace gradwire::watch::live
