// The two executors of a session over host memory: one for buckets of the steps, one for buckets that travel beside
// them, behind the messages of the first.
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

class HostExecutors {
 public:
  /// The transport outlives this.
  HostExecutors(Transport& transport, const SessionOptions& options, const RunnerInfo& info, std::uint32_t epoch);

  /// The executor of the steps.
  [[nodiscard]] exchange::HostExecutor& steps() noexcept { return steps_; }
  [[nodiscard]] exchange::HostExecutor& of(bool background) noexcept { return background ? background_ : steps_; }
  /// A bucket of the steps is about to start.
  void note_start() { foreground_.note(true, true); }
  /// Moves both, the background behind what sends.
  void advance(std::chrono::microseconds wait);
  void fail(const Error& error) noexcept;

  /// How lanes are kept in flight.
  void set_plan(const plan::Plan& plan);
  /// What was measured: so much is kept in flight from now on.
  void know_link(const exchange::Cluster& cluster);
  [[nodiscard]] std::uint64_t peak_frame_bytes() const {
    return steps_.pool().peak_bytes() + background_.pool().peak_bytes();
  }

 private:
  bool advance_steps(std::chrono::microseconds wait);

  exchange::HostExecutor steps_;
  exchange::HostExecutor background_;
  transport::Foreground foreground_;             // the former, to whoever else shares the link
  std::chrono::steady_clock::time_point moved_;  // when the former did something, or had nothing to send
};

}  // namespace gradwire::session
