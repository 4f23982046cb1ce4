#include "session/parts/observation/observation.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "observe/record.hpp"
#include "session/logging/logging.hpp"
#include "session/parts/observation/status_line.hpp"

namespace gradwire::session {
namespace {

class Observation final : public Part, public StepListener {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Observation(PartInputs inputs) : inputs_(std::move(inputs)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "observation"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  [[nodiscard]] StepListener* listener() noexcept override { return this; }
  void step_over(const StepOutcome& outcome, std::uint64_t begin, Time end) override;
  void session_ends() noexcept override { publish(true); }
  void take_over(Part& before) override { told_nonfinite_ = static_cast<Observation&>(before).told_nonfinite_; }

 private:
  void log_step(const StepOutcome& outcome, Time now);
  // Publishes counts for observers. `last`: no more follow.
  void publish(bool last) noexcept;

  const PartInputs inputs_;
  StatusLine status_;
  bool told_nonfinite_ = false;
  std::optional<Time> published_;
};

void Observation::step_over(const StepOutcome& outcome, std::uint64_t begin, Time end) {
  if (inputs_.runner.info().rank == 0) {
    log_step(outcome, end);
  }
  if (begin != 0) {
    observe::record_since(begin, {.source = inputs_.runner.info().source,
                                  .step = static_cast<std::uint32_t>(outcome.step),
                                  .kind = observe::EventKind::step_end});
    publish(false);
  }
}

void Observation::log_step(const StepOutcome& outcome, Time now) {
  if (outcome.nonfinite && !outcome.skipped && !told_nonfinite_) {
    told_nonfinite_ = true;
    log(LogLevel::warning,
        "step " + std::to_string(outcome.step) +
            ": NaN or Inf in a gradient, which all ranks got; Nonfinite::skip leaves such steps out. Told once; "
            "StepOutcome::nonfinite says it of every step");
  }
  if (logs(LogLevel::info) && status_.due(now)) {
    const SessionStatistics seen = inputs_.look().statistics;
    const Statistics all = seen.all();
    log(LogLevel::info, status_.tell({.step = outcome.step,
                                      .steps = seen.steps,
                                      .exposed_seconds = seen.exposed_seconds,
                                      .calls = all.calls,
                                      .ratio = all.ratio()},
                                     now));
  }
}

// Publishes at intervals only: a step of a millisecond must not pay for it each time.
void Observation::publish(bool last) noexcept {
  constexpr std::chrono::milliseconds kInterval{500};
  const auto now = std::chrono::steady_clock::now();
  if (!observe::on() || (!last && published_ && now - *published_ < kInterval)) {
    return;
  }
  published_ = now;
  try {
    observe::Snapshot snapshot = inputs_.look();
    snapshot.last = last;
    observe::publish(std::move(snapshot));
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lack of memory must not end a step
  }
}

}  // namespace

std::unique_ptr<Part> make_observation(const PartInputs& inputs) { return std::make_unique<Observation>(inputs); }

}  // namespace gradwire::session
