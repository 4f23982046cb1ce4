// DeviceSide is what an engine does only over device memory: it handles steps that are captured into graphs, and
// results that are complete only after their bucket has ended. Over host memory these calls do nothing.
#pragma once

#include <atomic>

#include "session/engine/core.hpp"

namespace gradwire::session {

class DeviceSide {
 public:
  explicit DeviceSide(Core& core) : core_(core) {}

  /// Whether the caller's work is being captured into a graph, to be replayed later.
  [[nodiscard]] bool capturing() const;
  /// Throws Error(unsupported) or Error(invalid_argument) if this step must not be captured. Called under `state`.
  void check_capture() const;
  /// Throws Error(invalid_argument), which names `call`, while a step is being captured; the session goes on.
  void require_no_capture(const char* call) const;
  /// Notes that a step was captured and may be replayed from now on.
  void note_captured() noexcept { was_captured_ = true; }
  /// Sets the host's step number to the device's, which replays may have advanced without the host.
  void catch_up_with_replays();

  /// Whether the device has done the work of a bucket that has ended. False, too, if another thread holds `wire`.
  [[nodiscard]] bool completed(const Ticket& ticket);
  /// Waits until the device has done the work of a bucket that has ended.
  void wait_completed(const Ticket& ticket);
  /// Ends the step on the device. Returns whether NaN or Inf is known to be in results.
  [[nodiscard]] bool end_step();
  /// Tells the device the number of the step. Called under `state`.
  void set_step();
  /// Waits for the device, so that this rank really holds the results that it reports as done.
  void settle();

 private:
  Core& core_;
  std::atomic<bool> was_captured_{false};
};

}  // namespace gradwire::session
