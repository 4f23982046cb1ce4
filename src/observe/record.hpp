// Records events. While recording is off, it costs one load and one predicted branch; while it is on, it reads the
// clock twice and writes 32 bytes into the thread's ring.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "observe/clock.hpp"
#include "observe/event.hpp"

namespace gradwire::observe {

namespace detail {
// The clock of events; ClockKind::none: nothing is recorded. It is no inline variable, since that would be one for all
// libraries of a process and keep them loaded.
extern std::atomic<ClockKind> g_clock;
void record_now(const Event& event) noexcept;
}  // namespace detail

/// Whether events are recorded.
[[nodiscard]] inline bool on() noexcept { return detail::g_clock.load(std::memory_order_relaxed) != ClockKind::none; }

/// The present time in ticks; 0 where nothing is recorded.
[[nodiscard]] inline std::uint64_t ticks() noexcept {
  const ClockKind kind = detail::g_clock.load(std::memory_order_relaxed);
  if (kind == ClockKind::none) [[likely]] {
    return 0;
  }
  return read_clock(kind);
}

/// The time from `begin` to `end` as Event::duration; at least 1, since 0 means none.
[[nodiscard]] inline std::uint32_t duration_between(std::uint64_t begin, std::uint64_t end) noexcept {
  const std::uint64_t units = end > begin ? (end - begin) / kTicksOfDuration : 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(units < 1 ? 1 : units < kMost ? units : kMost);
}

/// Puts an event into this thread's ring; does nothing while recording is off. Never throws, and only waits when it
/// makes the ring.
inline void record(const Event& event) noexcept {
  if (on()) [[unlikely]] {
    detail::record_now(event);
  }
}

/// Records an event that began at `begin`, a result of ticks(), and ends now; does nothing where that was 0.
inline void record_since(std::uint64_t begin, Event event) noexcept {
  if (begin != 0) [[unlikely]] {
    event.begin = begin;
    event.duration = duration_between(begin, ticks());
    record(event);
  }
}

/// Records one event from here to the end of the scope.
class Span {
 public:
  explicit Span(const Event& event) noexcept : begin_(ticks()) {
    if (begin_ != 0) {
      event_ = event;
    }
  }
  ~Span() { record_since(begin_, event_); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  std::uint64_t begin_;
  Event event_;
};

/// A rank as Event::peer.
[[nodiscard]] inline std::uint16_t peer_of(int rank) noexcept {
  return rank < 0 || rank >= kNoPeer ? kNoPeer : static_cast<std::uint16_t>(rank);
}

}  // namespace gradwire::observe
