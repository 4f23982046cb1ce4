#include "session/step/step_terms.hpp"

#include <cmath>
#include <string>

namespace gradwire::session {

void StepTerms::set_weight(double samples, std::uint64_t number) {
  if (!weight_.set && stepped_) {
    throw Error(ErrorCode::invalid_argument, "set_weight: first called in step " + std::to_string(number) +
                                                 "; call it from the first step on, on every rank");
  }
  weight_.set = true;
  weight_.value = samples;
}

void StepTerms::require_weights() const {
  if (weight_.required && !weight_.set) {
    throw Error(ErrorCode::invalid_argument,
                "ready: the loaded state is of weighted steps; call set_weight() first, as before it was saved");
  }
}

void StepTerms::resume(const SavedTerms& saved) {
  loss_scale_ = {saved.loss_scale, saved.loss_scale_set};
  weight_.required = weight_.required || saved.weighted;
}

void StepTerms::go_on_from(const StepTerms& before) {
  loss_scale_ = before.loss_scale_;
  weight_ = before.weight_;
  flush_ = before.flush_;
  stepped_ = before.stepped_;
}

}  // namespace gradwire::session
