// Communication is what the communicating thread does for an engine: it carries out the actions that the step asks for
// until there are none left, and moves the background work that travels beside the steps.
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

  // The caller holds `wire` for the next three functions.
  void agree_on_plan(bool weighted);
  /// Waits until nothing is in the background.
  void end_what_travels();
  /// Waits until nothing is in the background, on behalf of `call`, which may only be made between steps.
  void drain(const char* call);
  /// Finishes background work when the session ends, because other ranks wait for this rank's share of it.
  void end_background() noexcept;

 private:
  /// Carries out the actions that the step asks for. Returns whether a bucket was, or is now, under way.
  bool start_what_can(bool waits) REQUIRES(core_.progress.wire);
  void start(const Step::Action& action) REQUIRES(core_.progress.wire);
  /// Offers the bucket to the part that reduces in the background; returns whether the part took it.
  bool enqueue(const plan::Bucket& bucket, const StepInfo& info) REQUIRES(core_.progress.wire);
  /// Ends the bucket if this was the last arrival that its step waits for.
  void note_arrival(std::uint32_t bucket) REQUIRES(core_.progress.state);
  void record_ended(const std::vector<Buckets::Ended>& ended) REQUIRES(core_.progress.state);
  void look_for_nonfinite() REQUIRES(core_.progress.wire);
  /// Moves background work forward once, between steps.
  void progress_background() REQUIRES(core_.progress.wire);

  Core& core_;
  const ComingSteps& coming_;
  // Set while buckets are under way: the next communicate() counts the time from here on as busy.
  std::optional<std::chrono::steady_clock::time_point> busy_since_ GUARDED_BY(core_.progress.wire);
};

}  // namespace gradwire::session
