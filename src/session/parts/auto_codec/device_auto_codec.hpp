// Chooses the codec of buckets with codec = "auto" over device memory: the library's own sums, or one of the codecs
// that the policy allows, the same level for all such buckets. A device works without the host, so no bucket can be
// timed as on hosts. Instead whole steps are timed in pairs, and choice::DeviceGate decides. Before and behind each
// step of a trial the ranks compare numbers, for which the host waits for the device. Captured steps are neither
// counted nor tried: they take what is in use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.hpp"
#include "choice/auto_levels.hpp"
#include "choice/device_gate.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "session/part/part.hpp"
#include "session/parts/auto_codec/step_pairs.hpp"

namespace gradwire::session {

class DeviceAutoCodec final : public Part, public ComparedPart, public Tuner {
 public:
  /// Returns seconds from some moment on.
  using Clock = std::function<double()>;

  static constexpr std::uint64_t kStepsApart = 64;  // between two exchanges of medians

  /// `runner` and `plan` must outlive this. `clock`: the monotonic clock, if it is null.
  DeviceAutoCodec(Runner& runner, const plan::Plan& plan, Clock clock = nullptr);

  [[nodiscard]] std::string_view name() const noexcept override { return "auto codec"; }
  [[nodiscard]] ComparedPart* compared() noexcept override { return this; }
  [[nodiscard]] Tuner* tuner() noexcept override { return this; }
  void agreed(const Agreement& agreement) override;
  void load(const SavedState& state) override;
  void add_to(SessionStatistics& statistics) const override;

  /// Sets the step's choices.
  void tune(StepInfo& info) const override;
  void bucket_ended(std::uint64_t /*step*/, const Buckets::Ended& /*bucket*/) override {}
  void step_ended(std::uint64_t step, const StepSeen& seen) override;
  [[nodiscard]] std::uint64_t revision() const noexcept override { return pairs_.changes(); }
  [[nodiscard]] bool due(std::uint64_t /*step*/) const override { return pairs_.meets() || exchanges(); }
  void append(std::vector<double>& numbers) override;
  void take(const Compared& compared) override;

  [[nodiscard]] const choice::DeviceGate& gate() const noexcept { return gate_; }

 private:
  [[nodiscard]] bool has_memory(const choice::DeviceGate::Asked& asked);
  [[nodiscard]] bool exchanges() const noexcept { return pairs_.steps() > 0 && pairs_.steps() % kStepsApart == 0; }
  void note_change(std::uint64_t step);
  void note(std::uint64_t step, std::size_t level, const std::string& reason);

  Runner& runner_;
  const plan::Plan& plan_;
  Clock clock_;
  std::vector<std::vector<BucketChoice>> choices_;  // by level
  choice::DeviceGate gate_;
  StepPairs pairs_;        // their ways are levels
  std::size_t noted_ = 0;  // the level in use that reports name
  bool weighted_ = false;
  bool took_memory_ = false;  // for trials, of which the ranks have not agreed yet that all have it

  // Other threads ask for these.
  mutable Mutex mutex_;
  choice::Levels levels_ GUARDED_BY(mutex_);
  std::vector<CodecSwitch> switches_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::session
