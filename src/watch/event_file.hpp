// Events as they were recorded, in a file of the process: what a timeline is made of afterwards. Appended every 100 ms,
// so a process that is killed leaves a file that can be read up to there.
//
// Blocks, each a head of 32 bytes and `bytes` bytes, in the byte order of the machine that wrote them. The first is of
// kind `file`. An `events` block holds events of one thread, in its order, by the latest `scale` before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/trace_target.hpp"
#include "observe/collector.hpp"

namespace gradwire::watch {

using gradwire::TraceTarget;

inline constexpr std::uint32_t kEventFileVersion = 2;

struct EventFileHead {
  std::uint32_t version = kEventFileVersion;
  std::uint32_t event_bytes = sizeof(observe::Event);
  std::int32_t rank = 0;
  std::uint32_t clock = 0;  // observe::ClockKind
  char host[64] = {};       // its name
  // The same text: the same CLOCK_MONOTONIC. It is of one boot of a host, and of one time namespace. Empty: not known.
  char monotonic[64] = {};
};

struct EventFileScale {
  std::uint64_t ticks = 0;
  std::uint64_t monotonic = 0;  // CLOCK_MONOTONIC then, ns
  std::int64_t realtime = 0;    // CLOCK_REALTIME then, ns: what clocks of hosts have in common, more or less
  double nanoseconds_per_tick = 1;
  std::uint64_t recorded = 0;  // so far, by all threads
  std::uint64_t dropped = 0;   // so far; these are missing

  [[nodiscard]] observe::TimeScale scale() const noexcept { return {ticks, monotonic, nanoseconds_per_tick}; }
};

struct EventFileSource {
  std::uint32_t id = 0;
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::uint32_t kind = 0;            // observe::Source::Kind
  std::uint32_t shares_process = 0;  // 1: with other ranks of its world
};

struct EventFileOptions {
  TraceTarget target;
  std::string part = "library";  // as TextfileOptions
  std::function<std::optional<int>()> rank = {};
  std::function<void(const std::string&)> warn;
  std::uint64_t most_bytes = std::uint64_t{1} << 30;  // then it ends, with a warning
};

/// Writes "gradwire-mpi-rank-3.events". What cannot be written is told once, and the file ends there. Events of steps
/// that were not asked for are left out; what belongs to no step is kept.
class EventFileSink final : public observe::Sink {
 public:
  explicit EventFileSink(EventFileOptions options) : options_(std::move(options)) {}
  ~EventFileSink() override;
  void take(const observe::Round& round) override;

 private:
  enum class State : std::uint8_t { waits, writes, ended };
  [[nodiscard]] std::optional<int> find_rank(std::span<const observe::Stretch> stretches) const;
  void open(int rank, observe::ClockKind clock);
  void write(const observe::Round& round);
  void note_sources();
  void append(std::uint32_t kind, std::uint32_t thread, const void* data, std::uint64_t bytes);
  void close();
  void end(const std::string& why);

  EventFileOptions options_;
  State state_ = State::waits;
  int descriptor_ = -1;
  std::filesystem::path file_;
  std::uint64_t bytes_ = 0;
  std::uint32_t next_source_ = 1;
  std::vector<observe::Event> kept_;
};

/// Whether events of the kind belong to a step, so that a choice of steps holds for them.
[[nodiscard]] bool has_step(observe::EventKind kind) noexcept;

/// What a file holds, in its order.
struct EventFileVisitor {
  std::function<void(const EventFileHead&)> head = {};
  std::function<void(const EventFileSource&)> source = {};
  std::function<void(const EventFileScale&)> scale = {};
  std::function<void(std::uint32_t thread, std::span<const observe::Event>)> events = {};
};
/// Whether the file ends as one does whose process ended by itself; one that was cut off is read as far as it goes.
/// Error(corrupt) that names the file and the place for what no process leaves.
bool read_event_file(const std::filesystem::path& file, const EventFileVisitor& visitor);

}  // namespace gradwire::watch
