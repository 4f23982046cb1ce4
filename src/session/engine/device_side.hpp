// What an engine does only over device memory: steps that are captured into graphs, results that come later. Over host
// memory these calls do nothing.
#pragma once

#include <atomic>

#include "session/engine/core.hpp"

namespace gradwire::session {

class DeviceSide {
 public:
  explicit DeviceSide(Core& core) : core_(core) {}

  /// Whether what the caller does now is captured, to be replayed later.
  [[nodiscard]] bool capturing() const;
  /// Throws if this step must not be captured. Called under `state`.
  void check_capture() const;
  /// Error(invalid_argument) while a step is being captured; the session goes on.
  void require_no_capture(const char* call) const;
  /// A step was captured, and may be replayed from now on.
  void note_captured() noexcept { was_captured_ = true; }
  /// Replays have advanced the device's step behind the host's back.
  void catch_up_with_replays();

  /// Whether the device has done what a bucket that has ended asked for; the wait for it.
  [[nodiscard]] bool completed(const Ticket& ticket);
  void wait_completed(const Ticket& ticket);
  /// Returns whether NaN or Inf is known to be in results.
  [[nodiscard]] bool end_step();
  /// Called under `state`.
  void set_step();
  /// Waits for the device, so that this rank really holds the results that it says it holds.
  void settle();

 private:
  Core& core_;
  std::atomic<bool> was_captured_{false};
};

}  // namespace gradwire::session
