// Who in this process sends what steps wait for, so that those whom nobody waits for let it pass: they share the link,
// and what is on it cannot be called back.
#pragma once

#include <atomic>
#include <chrono>

namespace gradwire::transport {

/// How long others hold back for a sender that does not get on. Its peer may go on only when it has what it waits for
/// from them.
constexpr std::chrono::milliseconds kHoldsBack{20};

/// One sender.
class Foreground {
 public:
  using Clock = std::chrono::steady_clock;

  Foreground() = default;
  ~Foreground() { note(false, false); }
  Foreground(const Foreground&) = delete;
  Foreground& operator=(const Foreground&) = delete;

  /// `sending`: whether something is on its way; `moved`: whether anything has come or gone since the last call.
  void note(bool sending, bool moved, Clock::time_point now = Clock::now()) noexcept;

 private:
  std::atomic<bool> sending_ = false;
};

/// Whether any sender has something on its way, and any has moved within kHoldsBack. Any thread.
[[nodiscard]] bool foreground_sends(Foreground::Clock::time_point now = Foreground::Clock::now()) noexcept;

}  // namespace gradwire::transport
