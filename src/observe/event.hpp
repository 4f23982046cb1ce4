// The records of a running job: one event of 32 bytes for each thing that happens, on the thread where it happens.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace gradwire::observe {

enum class EventKind : std::uint8_t {
  // Events of a session's step. A bucket's `bytes` are those of its tensors.
  step_begin,    // the first gradient is ready
  step_end,      // `duration`: the time inside finish(), which no computation hid
  bucket_begin,  // the bucket's collective is queued
  bucket_end,    // the bucket's result is there; `duration` since bucket_begin
  // Stages of a lane. `bytes` are those of the tensors' elements that were worked on.
  encode,
  reduce,  // the owner's sum, and encoding that
  decode,
  native,  // copying into the transport's own sum, and out of it
  wait,    // for messages, with nothing to compute
  // Messages. `bytes` as the transport counts them; `duration` until it was seen to be done.
  send,
  receive,
  all_reduce,  // the transport's own sum
  // Other events.
  pull,      // of a table: `bytes` of the rows
  push,      // the same for a push or an assign
  choice,    // of codec = "auto": `bytes` is the number of buckets that changed
  compare,   // ranks compared their measurements of their steps; `duration`
  save,      // of a session's state
  load,      // of a session's state
  replaced,  // a call of the job that a drop-in compressed; `bytes` of its input
  passed,    // a call that a drop-in passed on; `lane` is the drop-in's Reason
  error,     // a session, a table or a communicator gave up; `bytes` is the ErrorCode
};
inline constexpr int kEventKinds = static_cast<int>(EventKind::error) + 1;
[[nodiscard]] std::string_view to_string(EventKind kind) noexcept;

/// The source of events: a session, a communicator, a table, a drop-in. 0: none.
using SourceId = std::uint16_t;

inline constexpr std::uint16_t kNoPeer = std::numeric_limits<std::uint16_t>::max();
inline constexpr std::uint32_t kNoBucket = (1U << 24) - 1;
/// Durations are kept in units of so many ticks: 32 bits hold 20 s of a counter of 3.4 GHz; longer ones are cut off.
inline constexpr std::uint64_t kTicksOfDuration = 16;

struct Event {
  std::uint64_t begin = 0;  // ticks of the clock (clock.hpp)
  std::uint64_t bytes : 44 = 0;
  std::uint64_t hop : 4 = 0;  // of a message: exchange::Hop
  std::uint64_t source : 16 = 0;
  std::uint32_t duration = 0;  // in kTicksOfDuration; 0: the event has none
  std::uint32_t step = 0;
  std::uint32_t bucket : 24 = kNoBucket;
  EventKind kind = EventKind::error;
  std::uint16_t lane = 0;  // modulo 65536
  std::uint16_t peer = kNoPeer;
};
static_assert(sizeof(Event) == 32 && std::is_trivially_copyable_v<Event>);

}  // namespace gradwire::observe
