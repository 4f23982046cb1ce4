// Where events are recorded. Off, a place costs one load and one branch that is predicted; on, two looks at the clock
// and 32 bytes into the ring of the thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "observe/clock.hpp"
#include "observe/event.hpp"

namespace gradwire::observe {

namespace detail {
// The clock that events are stamped by; ClockKind::none: nothing is recorded. In no header as an inline variable, which
// would be one for all libraries of a process and keep them loaded.
extern std::atomic<ClockKind> g_clock;
void record_now(const Event& event) noexcept;
}  // namespace detail

/// Whether somebody wants events.
[[nodiscard]] inline bool on() noexcept { return detail::g_clock.load(std::memory_order_relaxed) != ClockKind::none; }

/// Now; 0 where nothing is recorded.
[[nodiscard]] inline std::uint64_t ticks() noexcept {
  const ClockKind kind = detail::g_clock.load(std::memory_order_relaxed);
  if (kind == ClockKind::none) [[likely]] {
    return 0;
  }
  return read_clock(kind);
}

/// From `begin` to `end` as Event::duration; at least 1, so that it is one.
[[nodiscard]] inline std::uint32_t duration_between(std::uint64_t begin, std::uint64_t end) noexcept {
  const std::uint64_t units = end > begin ? (end - begin) / kTicksOfDuration : 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(units < 1 ? 1 : units < kMost ? units : kMost);
}

/// Puts an event into this thread's ring. Where nothing is recorded, it does nothing. Never throws, never waits but for
/// the making of the ring.
inline void record(const Event& event) noexcept {
  if (on()) [[unlikely]] {
    detail::record_now(event);
  }
}

/// Records an event that began at `begin`, which ticks() said, and ends now; nothing where that was 0.
inline void record_since(std::uint64_t begin, Event event) noexcept {
  if (begin != 0) [[unlikely]] {
    event.begin = begin;
    event.duration = duration_between(begin, ticks());
    record(event);
  }
}

/// One event from here to the end of the scope.
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
