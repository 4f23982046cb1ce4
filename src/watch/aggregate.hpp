// Events and counts of a process, summed up by rank. The class is pure: it is told of events, and uses no clock, lock
// or thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "observe/clock.hpp"
#include "observe/collector.hpp"
#include "observe/event.hpp"
#include "observe/sources.hpp"
#include "observe/watching.hpp"
#include "watch/metric.hpp"

namespace gradwire::watch {

using observe::ReplacedCalls;

/// A codec as a label. For codec = "auto" the text also says what is in use now, or what can be before anything is
/// measured; that is cut off, since it would make a new series each time.
[[nodiscard]] inline std::string label_of_codec(const std::string& codec) {
  return codec.starts_with("auto (") ? "auto" : codec.substr(0, codec.find(':'));
}

/// The state of the reader of events.
struct ReaderState {
  observe::ClockKind clock = observe::ClockKind::none;
  std::uint64_t recorded = 0;
  std::uint64_t dropped = 0;
  double cpu_seconds = 0;
  std::uint64_t ring_bytes = 0;
  bool ended = false;     // nothing follows
  std::string host = {};  // its name
};

/// A value for each kind of event.
template <typename Value>
class ByKind {
 public:
  explicit ByKind(const Value& value = {}) { values_.fill(value); }
  [[nodiscard]] Value& operator[](observe::EventKind kind) noexcept { return values_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const Value& operator[](observe::EventKind kind) const noexcept {
    return values_[static_cast<std::size_t>(kind)];
  }

 private:
  std::array<Value, observe::kEventKinds> values_;
};

/// Messages of one range of sizes.
struct SentMessages {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;  // from the send until the other side has taken it, summed over messages
};

/// One rank's.
struct RankTotals {
  int world_size = 1;
  ByKind<Histogram> seconds{Histogram::of_seconds()};  // of events with a duration, except messages
  ByKind<Histogram> bytes{Histogram::of_bytes()};      // of messages
  ByKind<std::uint64_t> events;
  ByKind<std::uint64_t> sum_of_bytes;
  Histogram steps = Histogram::of_seconds();                // from the end of one step to the end of the next
  std::map<observe::SourceId, std::uint64_t> step_ended;    // ticks
  std::map<observe::SourceId, SessionStatistics> sessions;  // the latest of sessions that go on
  std::map<observe::SourceId, observe::SlowState> slow;     // of sessions that compare their ranks
  SessionStatistics gone;                                   // the sum over sessions that have ended
  std::map<int, std::uint64_t> passed;                      // events EventKind::passed, by reason
  double sending_seconds = 0;                               // time with at least one message on its way out
  std::array<SentMessages, Histogram::kBounds + 1> sent;    // by the ranges of `bytes`
  std::uint64_t sending_until = 0;                          // ticks
  double bucket_byte_seconds = 0;                           // sum of bytes x duration over buckets
  std::optional<LinkEstimate> link;                         // the latest
  std::map<std::string, double> notes;                      // numbers that the job told, by name: the latest
  std::map<std::pair<std::string, std::string>, observe::Knowledge::Health> health;  // by group and label of its codec
  std::map<std::pair<std::string, std::string>, std::string> warm_ups;               // likewise: the codec in use
  std::map<observe::SourceId, observe::Knowledge::Memory> memory;                    // of sessions that go on
  std::map<observe::SourceId, observe::Knowledge::Rows> rows;

  /// The sum over all sessions; groups of the same name and codec are one.
  [[nodiscard]] SessionStatistics sum() const;
};

/// Metrics of a rank, in a fixed order. `replaced`: of a drop-in.
[[nodiscard]] std::vector<Family> families(const RankTotals& rank, const ReaderState& reader,
                                           std::span<const ReplacedCalls> replaced);

class Aggregate {
 public:
  using SourceOf = std::function<std::optional<observe::Source>(observe::SourceId)>;

  /// `source_of`: observe::source_of, or a test's.
  explicit Aggregate(SourceOf source_of) : source_of_(std::move(source_of)) {}

  /// Sets the rank of this process, where it is known better than from its first source.
  void set_home(int rank) { home_ = rank; }
  /// For drop-ins: their communicators make the replaced calls, which drop-ins count themselves.
  void leave_out_calls_of_communicators() noexcept { counts_communicators_ = false; }
  void add(std::span<const observe::Event> events, const observe::TimeScale& scale);
  void add(const observe::Snapshot& snapshot);
  /// Adds a round. `home` is asked for the rank of the process until it knows; may be empty. That rank's job has at
  /// least `world_size` ranks.
  void add(const observe::Round& round, const std::function<std::optional<int>()>& home, int world_size = 1);

  /// Totals by rank. All sources whose ranks have processes of their own count for this process's rank.
  [[nodiscard]] const std::map<int, RankTotals>& ranks() const noexcept { return ranks_; }
  /// The rank of events without a source, where it is known.
  [[nodiscard]] std::optional<int> home() const noexcept { return home_; }
  /// Adds a rank even if it has no events yet.
  void touch(int rank) { ranks_[rank]; }

 private:
  [[nodiscard]] RankTotals* rank_of(observe::SourceId id);
  [[nodiscard]] std::optional<int> find_home(observe::SourceId id) const;

  SourceOf source_of_;
  std::optional<int> home_;
  bool counts_communicators_ = true;
  std::map<int, RankTotals> ranks_;
  std::map<observe::SourceId, RankTotals*> known_;
};

}  // namespace gradwire::watch
