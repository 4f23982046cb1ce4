// Knows whether this process sends messages that steps wait for, so that background messages can hold back: all share
// the link, and a message that is on it cannot be called back.
#pragma once

#include <atomic>
#include <chrono>

namespace gradwire::transport {

/// How long background messages hold back for a sender that makes no progress: its peer may itself be waiting for one
/// of them.
constexpr std::chrono::milliseconds kHoldsBack{20};

/// One sender of messages that steps wait for.
class Foreground {
 public:
  using Clock = std::chrono::steady_clock;

  Foreground() = default;
  ~Foreground() { note(false, false); }
  Foreground(const Foreground&) = delete;
  Foreground& operator=(const Foreground&) = delete;

  /// `sending`: whether a message is on its way; `moved`: whether anything was sent or received since the last call.
  void note(bool sending, bool moved, Clock::time_point now = Clock::now()) noexcept;

 private:
  std::atomic<bool> sending_ = false;
};

/// Whether any sender has a message on its way, and any has moved within kHoldsBack. Any thread may call this.
[[nodiscard]] bool foreground_sends(Foreground::Clock::time_point now = Foreground::Clock::now()) noexcept;

}  // namespace gradwire::transport
