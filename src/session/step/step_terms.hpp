// StepTerms holds what the caller has set for the coming steps, and whether ranks have agreed on it: the loss scale,
// this rank's weight, and whether the next step carries all residuals.
#pragma once

#include <cstdint>

#include "gradwire/session.hpp"
#include "session/state/saved_state.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

class StepTerms {
 public:
  explicit StepTerms(Nonfinite nonfinite) : nonfinite_(nonfinite) {}

  void set_loss_scale(double scale) { loss_scale_ = {scale, true}; }
  [[nodiscard]] double loss_scale() const noexcept { return loss_scale_.factor; }
  /// Whether the caller has ever set the loss scale.
  [[nodiscard]] bool loss_scale_set() const noexcept { return loss_scale_.set; }

  /// Sets this rank's weight. Throws Error(invalid_argument), which names the step `number`, if the first call comes
  /// after a step has ended.
  void set_weight(double samples, std::uint64_t number);
  [[nodiscard]] bool weighted() const noexcept { return weight_.set; }
  /// Whether steps are weighted, or will be because the loaded state is of weighted steps.
  [[nodiscard]] bool is_to_be_weighted() const noexcept { return weight_.set || weight_.required; }
  /// Throws Error(invalid_argument) if the loaded state needs weights and the caller has not set one.
  void require_weights() const;

  /// The next step that is not skipped carries all residuals.
  void flush_next() noexcept { flush_ = true; }
  [[nodiscard]] bool flushes() const noexcept { return flush_; }
  /// Whether steps with NaN or Inf are skipped, so that every step begins with a look for them.
  [[nodiscard]] bool skips() const noexcept {
    return nonfinite_ == Nonfinite::skip || (nonfinite_ == Nonfinite::automatic && loss_scale_.set);
  }

  // The agreement changes only under both locks.
  void agree() noexcept { agreed_ = is_to_be_weighted() ? Agreed::weighted : Agreed::unweighted; }
  [[nodiscard]] bool has_agreed() const noexcept { return agreed_ != Agreed::no; }
  /// Whether ranks must agree before the next bucket: they never have, or they have agreed on steps without weights
  /// before this rank set one.
  [[nodiscard]] bool to_agree() const noexcept {
    return agreed_ == Agreed::no || (agreed_ == Agreed::unweighted && weight_.set);
  }

  [[nodiscard]] SavedTerms saved() const { return {loss_scale_.factor, loss_scale_.set, is_to_be_weighted()}; }
  /// Continues from a saved state.
  void resume(const SavedTerms& saved);
  /// Continues from the terms of the previous world. Their agreement does not carry over, since it was among the ranks
  /// of that world.
  void go_on_from(const StepTerms& before);
  /// Notes that a step has ended.
  void end_step(bool skipped) noexcept {
    flush_ = flush_ && skipped;
    stepped_ = true;
  }
  /// Whether a step has ever ended.
  [[nodiscard]] bool stepped() const noexcept { return stepped_; }
  [[nodiscard]] StepInfo info(std::uint64_t number) const {
    return {static_cast<std::uint32_t>(number), weight_.set, weight_.value, flush_};
  }

 private:
  enum class Agreed : std::uint8_t { no, unweighted, weighted };

  Nonfinite nonfinite_;
  struct {
    double factor = 1;
    bool set = false;
  } loss_scale_;
  struct {
    bool set = false;       // the caller has set a weight
    bool required = false;  // loaded residuals are in units of weight x gradient
    double value = 1;
  } weight_;
  bool flush_ = false;
  bool stepped_ = false;
  Agreed agreed_ = Agreed::no;
};

}  // namespace gradwire::session
