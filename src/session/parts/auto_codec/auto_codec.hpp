// Chooses the codec of each bucket while a training runs: measures at the start, watches steps, and lets ranks compare
// their measurements at steps that all ranks know, so that they decide alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "choice/auto_choice.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/part/part.hpp"
#include "session/parts/auto_codec/calibration.hpp"
#include "session/parts/auto_codec/decision_pace.hpp"
#include "session/parts/auto_codec/step_measurements.hpp"

namespace gradwire::session {

class AutoCodec final : public Part, public ComparedPart, public Tuner {
 public:
  /// All must outlive this; `probes` are the runner's. Only [link] and [auto] of the policy are used, since the plan
  /// has the rest.
  AutoCodec(Runner& runner, Probes& probes, const plan::Plan& plan, const Policy& policy);

  /// Measures, and chooses codecs for `step`, the first one. Collective. `measured`: see calibrate().
  void begin(std::uint64_t step, const StepsAhead& steps, const LinkMeasured& measured);
  void agreed(const Agreement& agreement) override { begin(agreement.step, agreement.steps, agreement.link_measured); }
  /// This session has made no step yet.
  void load(const SavedState& state) override;

  [[nodiscard]] std::string_view name() const noexcept override { return "auto codec"; }
  [[nodiscard]] ComparedPart* compared() noexcept override { return this; }
  [[nodiscard]] Tuner* tuner() noexcept override { return this; }
  void add_to(SessionStatistics& statistics) const override;
  void add_to(observe::Snapshot& snapshot) const override;

  [[nodiscard]] std::span<const BucketChoice> choices() const noexcept { return choice_.choices(); }
  [[nodiscard]] std::uint64_t revision() const noexcept override { return revision_; }
  /// Sets the step's choices(), and whether encoders sample what they drop.
  void tune(StepInfo& info) const override;
  void bucket_ended(std::uint64_t /*step*/, const Buckets::Ended& bucket) override { mine_.add(bucket); }
  /// Adds a step. At steps that all ranks know, ranks compare their measurements afterwards and decide for the next
  /// step.
  void step_ended(std::uint64_t step, const StepSeen& seen) override;
  [[nodiscard]] bool due(std::uint64_t step) const override;
  void append(std::vector<double>& numbers) override { mine_.append(numbers); }
  void take(const Compared& compared) override;

  // Any thread may call these.
  /// Returns the measured link; nothing before the first measurement.
  [[nodiscard]] std::optional<LinkEstimate> link() const;
  [[nodiscard]] std::vector<CodecSwitch> switches() const;
  /// Returns the codecs of a group's buckets, such as "auto: int8" or "auto: int8 3, dense 1".
  [[nodiscard]] std::string codec_text(std::size_t group) const;

 private:
  void probe(const choice::LinkReport& report);
  void note(const choice::Change& change);

  Runner& runner_;
  Probes& probes_;
  const plan::Plan& plan_;
  std::optional<Link> given_;
  DecisionPace pace_;
  choice::AutoChoice choice_;
  double measured_in_seconds_ = 0;
  bool begun_ = false;
  StepMeasurements mine_;
  std::uint64_t revision_ = 0;

  // Other threads ask for these.
  mutable Mutex mutex_;
  std::optional<LinkEstimate> link_ GUARDED_BY(mutex_);
  std::vector<CodecSwitch> switches_ GUARDED_BY(mutex_);
  choice::Levels levels_ GUARDED_BY(mutex_);
};

/// Returns null if the plan leaves no codec to be chosen at run time. Over device memory it is a DeviceAutoCodec, null
/// for one rank.
[[nodiscard]] std::unique_ptr<Part> make_auto_codec(const PartInputs& inputs);

}  // namespace gradwire::session
