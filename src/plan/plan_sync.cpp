#include "plan/plan_sync.hpp"

#include <vector>

#include "gradwire/error.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {

void check_sync(const Group& group, const std::string& source, Reduction reduction) {
  const Sync& sync = group.policy.sync;
  const auto fail = [&](const std::string& what, ErrorCode code = ErrorCode::invalid_argument) {
    throw Error(code, "policy " + source + ", " + group.name + ": " + what);
  };
  if (const std::string problem = policy::problem_of(sync); !problem.empty()) {
    fail(problem);
  }
  if (policy::is_step(sync)) {
    return;
  }
  if (group.policy.is_auto()) {
    fail(std::string(policy::kSyncNeedsACodec));
  }
  if (sync.mode == Sync::Mode::rows) {
    fail(std::string(policy::kRowsNeedATable), ErrorCode::unsupported);
  }
  if (sync.mode == Sync::Mode::every && reduction == Reduction::sum) {
    fail("sync " + policy::to_string(sync) + " averages parameters; make the session with Reduction::mean");
  }
}

void check_parameters(const TensorPlan& tensor, std::uint32_t others) {
  const Sync& sync = tensor.policy.sync;
  const auto fail = [&](const std::string& what, ErrorCode code = ErrorCode::invalid_argument) {
    throw Error(code, "sync " + policy::to_string(sync) + " of tensor \"" + tensor.info.name + "\" (" + tensor.why +
                          "): " + what);
  };
  if (tensor.info.parameters == 0) {
    fail("it has no parameter to average; register it: add(name, gradient, parameter, {optimizer state})");
  }
  if (tensor.info.parameters != others) {
    fail("it has " + std::to_string(tensor.info.parameters - 1) + " optimizer state(s), others of its group have " +
         std::to_string(others - 1) + "; register as many for each");
  }
  if (sync.outer && element_bytes(tensor.info.dtype) < element_bytes(DType::f32)) {
    fail("changes of parameters of 16 bits round away; keep them in f32, or leave outer out", ErrorCode::unsupported);
  }
}

void give_turns(Plan& plan) {
  std::vector<std::uint64_t> members(plan.groups.size());
  for (const Bucket& bucket : plan.buckets) {
    ++members[bucket.group];
  }
  std::vector<std::uint64_t> before(plan.groups.size());
  for (Bucket& bucket : plan.buckets) {
    const std::uint64_t turn = before[bucket.group]++;
    bucket.sync_offset = bucket.sync.offset;
    if (bucket.sync.stagger) {
      const std::uint64_t later = turn * bucket.sync.every / members[bucket.group];
      bucket.sync_offset = static_cast<std::uint32_t>((bucket.sync.offset + later) % bucket.sync.every);
    }
  }
}

}  // namespace gradwire::plan
