// A rank's metrics over time, in bounded memory, and as the JSON that `gradwire report` reads. It uses no clock, lock
// or thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "watch/aggregate.hpp"

namespace gradwire::watch {

inline constexpr int kHistoryFormat = 1;
inline constexpr std::size_t kMostSamples = 512;
inline constexpr std::size_t kMostHistoryGroups = 16;  // later groups are counted as one, "other"
inline constexpr std::size_t kMostGauges = 64;

/// Counters, which only grow, summed up over a rank's sessions, tables and communicators. Names are those of the file.
inline constexpr std::array<std::string_view, 29> kHistoryCounters{"steps",
                                                                   "exposed_seconds",
                                                                   "timed_steps",
                                                                   "step_seconds",
                                                                   "finishes",
                                                                   "finish_seconds",
                                                                   "encode_seconds",
                                                                   "reduce_seconds",
                                                                   "decode_seconds",
                                                                   "native_seconds",
                                                                   "wait_seconds",
                                                                   "message_bytes",
                                                                   "sending_seconds",
                                                                   "pulls",
                                                                   "pull_seconds",
                                                                   "pushes",
                                                                   "push_seconds",
                                                                   "errors",
                                                                   "switches",
                                                                   "compressed_calls",
                                                                   "compressed_bytes_in",
                                                                   "compressed_bytes_sent",
                                                                   "compressed_bytes_dense",
                                                                   "compressed_seconds",
                                                                   "passed_calls",
                                                                   "passed_bytes_in",
                                                                   "passed_seconds",
                                                                   "observer_seconds",
                                                                   "passed_bytes_sent"};

/// Counters of a group of tensors.
inline constexpr std::array<std::string_view, 10> kHistoryGroupCounters{
    "calls",          "bytes_in",       "bytes_sent",   "bytes_intra",      "bytes_inter",
    "encode_seconds", "decode_seconds", "wire_seconds", "nonfinite_frames", "bytes_uncompressed"};

/// The head of a history file. Only `written` and `ended` change while the rank runs.
struct HistoryHead {
  std::string part = "library";  // what the process is, such as "mpi" (WatchedProcess::part)
  int rank = 0;
  std::string host = {};
  std::vector<std::string> command = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // gradwire variables that are set
  double started = 0;                                                 // seconds since 1970
  double written = 0;                                                 // likewise
  bool ended = false;                                                 // the rank ended by itself, so nothing follows
  std::string job = {};                                               // the name of the job
};

class History {
 public:
  explicit History(double interval = 0.5) : interval_(interval) {}

  /// Whether a sample at this time would be kept; `time`: seconds since the beginning.
  [[nodiscard]] bool is_due(double time) const;
  /// Takes a sample where it is due, and always remembers the latest values.
  void add(double time, const RankTotals& totals, const ReaderState& reader, std::span<const ReplacedCalls> replaced);
  [[nodiscard]] std::size_t samples() const noexcept { return samples_.size(); }
  [[nodiscard]] double interval() const noexcept { return interval_; }
  /// One JSON object.
  [[nodiscard]] std::string to_json(const HistoryHead& head) const;

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  struct GroupSample {
    std::array<double, kHistoryGroupCounters.size()> counters{};
    std::optional<std::size_t> codec = {};  // the codec in use, an index into codecs_; none: not in this sample
  };
  struct Sample {
    double time = 0;
    std::array<double, kHistoryCounters.size()> counters{};
    std::vector<GroupSample> groups = {};  // in the order of groups_, for those that were known
    std::vector<double> gauges = {};       // in the order of gauges_; kNone: no value
    std::size_t slow = 0;                  // why others wait for this rank, an index into causes_; 0: no cause
    double last_arrivals = kNone;
  };
  struct Group {
    std::string name;
    std::string codec;
    std::string algorithm;
    std::string sync;
  };

  [[nodiscard]] Sample take(double time, const RankTotals& totals, const ReaderState& reader,
                            std::span<const ReplacedCalls> replaced);
  void add_groups(Sample& sample, const SessionStatistics& sum, const RankTotals& totals);
  void add_gauges(Sample& sample, std::span<const Family> families);
  [[nodiscard]] std::size_t group_of(const SessionStatistics::Group& group);
  void append_head(std::string& text, const HistoryHead& head) const;
  void append_groups(std::string& text, std::span<const Sample* const> samples) const;

  double interval_;
  std::vector<Sample> samples_;  // every n-th of the samples that were due
  Sample latest_;
  int world_size_ = 1;
  std::string transport_;
  std::vector<Group> groups_;
  std::vector<std::string> codecs_;
  std::vector<std::string> gauges_;
  std::vector<std::string> causes_{""};
  std::vector<CodecSwitch> switches_;  // the last ones
  std::vector<ReplacedCalls> replaced_;
  std::array<SentMessages, Histogram::kBounds + 1> sent_;
};

}  // namespace gradwire::watch
