// Chooses the codec of each bucket while a training runs: measures at the start, watches steps, and at steps that all
// ranks know lets them compare what they saw and decide alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/auto/auto_choice.hpp"
#include "session/runner.hpp"
#include "session/step_comparison.hpp"
#include "session/step_watch.hpp"
#include "tuning/window.hpp"

namespace gradwire::session {

class AutoCodec final : public ComparedPart {
 public:
  /// All must outlive this; `probes` are the runner's. Of the policy only [link] and [auto] count: the plan has the
  /// rest.
  AutoCodec(Runner& runner, Probes& probes, const plan::Plan& plan, const Policy& policy);

  /// Measures and chooses for `step`, the first one. Collective. `measured`: see calibrate().
  void begin(std::uint64_t step, const StepsAhead& steps, const LinkMeasured& measured);
  /// Steps have other numbers from now on, of which `step` is the first: none has been made so far.
  void resume(std::uint64_t step);
  [[nodiscard]] std::span<const BucketChoice> choices() const noexcept { return choice_.choices(); }
  /// Another number where levels of choices() may be others.
  [[nodiscard]] std::uint64_t revision() const noexcept { return revision_; }
  /// Whether encoders look at what they drop in this step.
  [[nodiscard]] bool samples(std::uint64_t step) const noexcept;
  void sampled(std::uint32_t bucket, const tuning::QualitySample& sample);
  /// After a step that was reduced as usual. At those that all ranks know they compare and decide for the next one.
  void note_step(const StepSeen& seen);
  [[nodiscard]] bool due(std::uint64_t step) const override;
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  // Any thread.
  [[nodiscard]] LinkEstimate link() const;
  [[nodiscard]] std::vector<CodecSwitch> switches() const;
  /// "auto: int8", "auto: int8 3, dense 1": of the buckets of a group.
  [[nodiscard]] std::string codec_text(std::size_t group) const;

 private:
  struct Agreed {
    LinkReport report;
    std::vector<tuning::QualitySample> samples;  // by bucket: the worst of all ranks
  };
  [[nodiscard]] Neighbours probe_neighbours() const;
  [[nodiscard]] LinkReport report() const;
  [[nodiscard]] Agreed agree(const Compared& compared);
  void count_from(std::uint64_t step);
  void probe(const LinkReport& report);
  void note(const tuning::Change& change);

  Runner& runner_;
  Probes& probes_;
  const plan::Plan& plan_;
  std::optional<Link> given_;
  double cost_;                // share of the time that comparisons may take
  std::uint64_t least_steps_;  // between two comparisons
  AutoChoice choice_;
  double measured_in_seconds_ = 0;
  bool begun_ = false;
  std::vector<tuning::QualitySample> samples_;  // of this rank since the last comparison
  tuning::Window step_, busy_, wait_, bytes_, probed_;
  std::vector<tuning::Window> ready_;
  std::uint64_t first_ = 0;  // the step for which the first choice was
  std::uint64_t next_ = 0;   // the step after which ranks compare
  std::uint64_t revision_ = 0;

  mutable std::mutex mutex_;  // guards what other threads ask for
  LinkEstimate link_;
  std::vector<CodecSwitch> switches_;
  tuning::Levels levels_;
};

}  // namespace gradwire::session
