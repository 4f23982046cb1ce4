// The two executors of a session over host memory: one for the buckets of steps, and one for buckets that travel in the
// background, behind the messages of the first.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "exchange/host/host_executor.hpp"
#include "exchange/model/cost_model.hpp"
#include "plan/plan.hpp"
#include "session/runner/runner.hpp"
#include "transport/foreground.hpp"

namespace gradwire::session {

class ExecutorPair {
 public:
  /// The transport must outlive this.
  ExecutorPair(Transport& transport, const SessionOptions& options, const RunnerInfo& info, std::uint32_t epoch);

  /// The executor of the steps.
  [[nodiscard]] exchange::HostExecutor& steps() noexcept { return steps_; }
  [[nodiscard]] exchange::HostExecutor& of(bool background) noexcept { return background ? background_ : steps_; }
  /// Notes that a bucket of the steps is about to start.
  void note_start() { foreground_.note(true, true); }
  /// Advances both executors; the background comes behind the messages of the steps.
  void advance(std::chrono::microseconds wait);
  void fail(const Error& error) noexcept;

  /// Sets the plan's tiers, and how many lanes are kept in flight.
  void set_plan(const plan::Plan& plan);
  /// Sets by the measured link how many bytes are kept in flight from now on.
  void know_link(const exchange::Cluster& cluster);
  [[nodiscard]] std::uint64_t peak_frame_bytes() const {
    return steps_.pool().peak_bytes() + background_.pool().peak_bytes();
  }

 private:
  bool advance_steps(std::chrono::microseconds wait);

  exchange::HostExecutor steps_;
  exchange::HostExecutor background_;
  transport::Foreground foreground_;             // shows `steps_` to other senders on the link
  std::chrono::steady_clock::time_point moved_;  // when `steps_` last moved, or had nothing to send
};

}  // namespace gradwire::session
