// What the thread that communicates does for an engine: what the step says is next, until nothing is, and what travels
// beside the steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "session/engine/coming_steps.hpp"
#include "session/engine/core.hpp"

namespace gradwire::session {

class Communication final : public Progress::Work {
 public:
  Communication(Core& core, const ComingSteps& coming) : core_(core), coming_(coming) {}

  void communicate(std::chrono::microseconds wait, bool waits) override;
  [[nodiscard]] bool in_background() const override;
  [[nodiscard]] bool last_awaits_caller() const override;
  [[nodiscard]] bool all_await_caller() const override { return coming_.small(); }

  /// The caller holds `wire`.
  void agree_on_plan(bool weighted);
  /// Waits until nothing is in the background. The caller holds `wire`.
  void end_what_travels();
  /// The same, for `call`, which comes between steps.
  void drain(const char* call);
  /// Finishes background work when the session ends, because other ranks wait for this rank's share of it.
  void end_background() noexcept;

 private:
  bool start_what_can(bool waits);
  void start(const Step::Action& action);
  /// Offers the bucket to the part that reduces in the background; returns whether the part took it.
  bool enqueue(const plan::Bucket& bucket, const StepInfo& info);
  /// Ends the bucket if this was the last arrival that its step waits for. The caller holds `state`.
  void note_arrival(std::uint32_t bucket);
  /// The caller holds `state`.
  void record_ended(const std::vector<Buckets::Ended>& ended);
  void look_for_nonfinite();
  /// Moves background work forward once, between steps.
  void progress_background();

  Core& core_;
  const ComingSteps& coming_;
  // The next communicate() counts the time since then. Guarded by `wire`.
  std::optional<std::chrono::steady_clock::time_point> busy_since_;
};

}  // namespace gradwire::session
