// Events and counts of a process, summed up by rank. Pure: told of what happened, it knows no clock, lock or thread.
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

/// A codec as a label: of codec = "auto" the text also says what is in use now, which would make a new series each
/// time.
[[nodiscard]] inline std::string label_of_codec(const std::string& codec) { return codec.substr(0, codec.find(':')); }

/// What the reader of events says of itself.
struct ReaderState {
  observe::ClockKind clock = observe::ClockKind::none;
  std::uint64_t recorded = 0;
  std::uint64_t dropped = 0;
  double cpu_seconds = 0;
  std::uint64_t ring_bytes = 0;
  bool ended = false;  // nothing follows
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

/// One rank's.
struct RankTotals {
  int world_size = 1;
  ByKind<Histogram> seconds{Histogram::of_seconds()};  // of what has a duration, but for messages
  ByKind<Histogram> bytes{Histogram::of_bytes()};      // of messages
  ByKind<std::uint64_t> events;
  ByKind<std::uint64_t> sum_of_bytes;
  Histogram steps = Histogram::of_seconds();                // from the end of one to the end of the next
  std::map<observe::SourceId, std::uint64_t> step_ended;    // ticks
  std::map<observe::SourceId, SessionStatistics> sessions;  // the latest of those that go on
  std::map<observe::SourceId, observe::SlowState> slow;     // of those that compare their ranks
  SessionStatistics gone;                                   // the sum of those that do not
  std::map<int, std::uint64_t> passed;                      // events EventKind::passed, by reason
  double sending_seconds = 0;                               // with a message on its way out, however many they were
  std::uint64_t sending_until = 0;                          // ticks
  double bucket_byte_seconds = 0;                           // bytes of each bucket times what it took
  std::optional<LinkEstimate> link;                         // the latest
  std::map<std::pair<std::string, std::string>, observe::Knowledge::Health> health;  // by group and label of its codec
  std::map<observe::SourceId, observe::Knowledge::Memory> memory;                    // of those that go on
  std::map<observe::SourceId, observe::Knowledge::Rows> rows;

  /// All sessions as one: groups of one name and codec are one.
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

  /// The rank of this process, where that is known better than from its first source.
  void set_home(int rank) { home_ = rank; }
  /// Of a drop-in: its communicators make the replaced calls, which it counts itself.
  void leave_out_calls_of_communicators() noexcept { counts_communicators_ = false; }
  void add(std::span<const observe::Event> events, const observe::TimeScale& scale);
  void add(const observe::Snapshot& snapshot);
  /// All of a round. `home`: asked for the rank of the process until it knows; may be empty.
  void add(const observe::Round& round, const std::function<std::optional<int>()>& home);

  /// By rank. Sources whose ranks have processes of their own are all of this process's rank.
  [[nodiscard]] const std::map<int, RankTotals>& ranks() const noexcept { return ranks_; }
  /// Where it is known: the rank that events of nobody are of.
  [[nodiscard]] std::optional<int> home() const noexcept { return home_; }
  /// Makes that rank known although nothing has come of it.
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
