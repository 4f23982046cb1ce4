// Events as they were recorded, in a file of the process, from which a timeline is made later. Events are appended
// every 100 ms, so the file of a killed process can be read up to then.
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
  // Processes with the same text share CLOCK_MONOTONIC: it names a boot of a host and a time namespace. Empty: not
  // known.
  char monotonic[64] = {};
};

struct EventFileScale {
  std::uint64_t ticks = 0;
  std::uint64_t monotonic = 0;  // CLOCK_MONOTONIC at that moment, ns
  std::int64_t realtime = 0;    // CLOCK_REALTIME at that moment, ns: hosts agree on it, more or less
  double nanoseconds_per_tick = 1;
  std::uint64_t recorded = 0;  // so far, by all threads
  std::uint64_t dropped = 0;   // so far; these events are missing

  [[nodiscard]] observe::TimeScale scale() const noexcept { return {ticks, monotonic, nanoseconds_per_tick}; }
};

struct EventFileSource {
  std::uint32_t id = 0;
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::uint32_t kind = 0;            // observe::Source::Kind
  std::uint32_t shares_process = 0;  // 1: other ranks of its world are in the same process
};

struct EventFileOptions {
  TraceTarget target;
  std::string part = "library";  // what the process is, such as "mpi" (WatchedProcess::part)
  std::function<std::optional<int>()> rank = {};
  std::function<void(const std::string&)> warn;
  std::uint64_t most_bytes = std::uint64_t{1} << 30;  // then it ends, with a warning
};

/// Writes "gradwire-mpi-rank-3.events". A failed write is reported once, and the file ends there. Events of steps that
/// were not asked for are left out; events that belong to no step are kept.
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

/// Whether events of the kind belong to a step, so that a range of steps applies to them.
[[nodiscard]] bool has_step(observe::EventKind kind) noexcept;

/// Gets the blocks of a file, in its order.
struct EventFileVisitor {
  std::function<void(const EventFileHead&)> head = {};
  std::function<void(const EventFileSource&)> source = {};
  std::function<void(const EventFileScale&)> scale = {};
  std::function<void(std::uint32_t thread, std::span<const observe::Event>)> events = {};
};
/// Reads a file; returns whether its process ended by itself. A file that was cut off is read as far as it goes.
/// Error(corrupt), which names the file and the place, for bytes that no process writes.
bool read_event_file(const std::filesystem::path& file, const EventFileVisitor& visitor);

}  // namespace gradwire::watch
