#include "plan/plan_scale.hpp"

#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {

bool is_preconditioned(const TensorPlan& tensor) {
  const TensorPolicy& policy = tensor.policy;
  if (!tensor.info.scaled) {
    return false;
  }
  if (!policy::is_step(policy.sync)) {
    throw Error(ErrorCode::unsupported, "tensor \"" + tensor.info.name + "\" (" + tensor.why +
                                            ") has a scale, which sync " + policy::to_string(policy.sync) +
                                            " cannot use yet; add it without one, or use sync = \"step\"");
  }
  const auto lossy = [](const CodecSpec& codec) { return codec::Codec(codec, DType::f32).lossy(); };
  return lossy(policy.codec) || !policy.warmup.empty() || policy.is_auto() ||
         lossy(policy.second_hop.value_or(policy.codec));
}

}  // namespace gradwire::plan
