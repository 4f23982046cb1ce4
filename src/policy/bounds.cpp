#include "policy/bounds.hpp"

namespace gradwire::policy {

std::string contradiction(const Policy::Batch& batch) {
  return "accumulation from " + std::to_string(batch.min_accumulation) + " to " +
         std::to_string(batch.max_accumulation) + " leaves nothing to advise; write 1 <= min_accumulation <= " +
         "max_accumulation <= " + std::to_string(kMaxAccumulation);
}

}  // namespace gradwire::policy
