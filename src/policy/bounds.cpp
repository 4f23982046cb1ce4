#include "policy/bounds.hpp"

#include "base/units.hpp"

namespace gradwire::policy {

std::string contradiction(const Policy::Batch& batch) {
  return "accumulation from " + std::to_string(batch.min_accumulation) + " to " +
         std::to_string(batch.max_accumulation) + " leaves nothing to advise; write 1 <= min_accumulation <= " +
         "max_accumulation <= " + std::to_string(kMaxAccumulation);
}

std::string decay_problem(double decay) {
  return static_cast<float>(decay) > 0 && decay <= 1
             ? std::string()
             : "decay is " + format_number(decay, 8) + "; write a number above 0 and at most 1, such as 0.95";
}

std::string max_error_problem(double bound) {
  return bound > 0 && bound < 1 ? std::string()
                                : "max_error is " + format_number(bound, 8) +
                                      "; write a share of the sum above 0 and below 1, such as \"1%\" or 0.01";
}

}  // namespace gradwire::policy
