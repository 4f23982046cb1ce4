// The part of a session that has sync modes other than "step".
#pragma once

#include <memory>

#include "session/part/part_set.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire::session {

class SyncModesPart final : public Part, public Background {
 public:
  /// Throws Error(unsupported) over device memory.
  explicit SyncModesPart(const PartInputs& inputs);

  /// Public calls such as Session::sync_parameters() use it directly.
  [[nodiscard]] SyncModes& modes() noexcept { return modes_; }

  [[nodiscard]] std::string_view name() const noexcept override { return "sync modes"; }
  [[nodiscard]] Background* background() noexcept override { return this; }
  void check_loss_scale() const override;
  void save(SavedState& state) override { state.sync_modes = modes_.save(state.step); }
  void load(const SavedState& state) override { modes_.load(state.sync_modes, state.step); }
  void add_to(SessionStatistics& statistics) const override;
  void reset_statistics() override { modes_.reset_ages(); }

  void before_bucket(std::uint64_t step) override;
  [[nodiscard]] bool enqueue(const plan::Bucket& bucket, const StepInfo& info, std::uint64_t step,
                             double loss_scale) override {
    return modes_.enqueue(bucket, inputs_.tensors.memory(), info, step, loss_scale);
  }
  void start(Buckets& buckets) override { modes_.start(buckets); }
  void ended(const Buckets::Ended& bucket) override { modes_.ended(bucket); }
  [[nodiscard]] bool arrived(std::uint32_t bucket) const override { return modes_.arrived(bucket); }
  [[nodiscard]] bool busy() const override { return modes_.busy(); }
  [[nodiscard]] bool deliver(double loss_scale) override {
    return modes_.deliver(inputs_.tensors.memory(), loss_scale);
  }
  [[nodiscard]] bool enqueue_parameters(std::uint64_t step) override { return modes_.enqueue_all_parameters(step); }
  void deliver_between_steps(std::uint64_t step) override;
  [[nodiscard]] std::vector<View> comparable(std::uint64_t step) const override;

 private:
  const PartInputs inputs_;
  SyncModes modes_;
  bool agreed_on_outer_ = false;  // on the parameters with which outer momentum begins
};

/// Returns null if the session has no sync mode other than "step".
[[nodiscard]] SyncModes* sync_modes_of(const PartSet& parts);
/// Returns null if the plan has no other mode than "step" and the session does not continue with a result of one.
[[nodiscard]] std::unique_ptr<Part> make_sync_modes(const PartInputs& inputs);

}  // namespace gradwire::session
