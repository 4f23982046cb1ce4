#include "plan/plan_checks.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "exchange/collectives.hpp"
#include "gradwire/error.hpp"
#include "memory/store_folder.hpp"
#include "plan/plan_algorithms.hpp"
#include "policy/bounds.hpp"
#include "policy/rule.hpp"
#include "policy/stage.hpp"

namespace gradwire::plan {
namespace {

// `what`: "rule 2 (*): what is wrong; what to write".
[[noreturn]] void refuse(const Policy& policy, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "policy " + policy.source + ", " + what);
}
// `what` concerns the policy as a whole.
[[noreturn]] void refuse_whole(const Policy& policy, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "policy " + policy.source + ": " + what);
}

// Returns the stages of a group, and those that codec = "auto" may choose.
std::vector<policy::Stage> all_stages(const TensorPolicy& of_group, const Plan& plan, const Policy& policy) {
  std::vector<policy::Stage> stages = stages_of(of_group, plan, policy);
  for (const policy::Level& level : levels_of(of_group, plan, policy)) {
    stages.push_back(level.stage);
  }
  return stages;
}

void check_feedback(const TensorPolicy& of_group, const std::string& who, Plan& plan, const Policy& policy) {
  for (const policy::Stage& stage : all_stages(of_group, plan, policy)) {
    for (const CodecSpec& codec : {stage.codec, stage.second_hop, stage.intra.value_or(stage.codec)}) {
      if (of_group.error_feedback == ErrorFeedback::off && policy::requires_feedback(codec)) {
        refuse(policy, who + ": " + codec.to_string() +
                           " diverges without error feedback; write error_feedback = \"auto\", or another codec");
      }
    }
    if (of_group.error_feedback == ErrorFeedback::off && (stage.codec.k != 0 || stage.second_hop.k != 0)) {
      plan.warnings.push_back(who + ": " + stage.codec.to_string() +
                              " without error feedback loses what it does not keep, for ever; write "
                              "error_feedback = \"auto\"");
    }
    if (const std::string note = policy::selection_note(stage.codec); !note.empty()) {
      plan.notes.push_back(who + ": " + note);
    }
  }
}

void check_decay(const TensorPolicy& of_group, const std::string& who, Plan& plan, const Policy& policy) {
  if (const std::string problem = policy::decay_problem(of_group.decay); !problem.empty()) {
    refuse(policy, who + ": " + problem);
  }
  const std::vector<policy::Stage> stages = all_stages(of_group, plan, policy);
  if (of_group.decay != 1 &&
      std::none_of(stages.begin(), stages.end(), [](const policy::Stage& stage) { return stage.error_feedback; })) {
    plan.warnings.push_back(who + ": decay has no effect without error feedback; write error_feedback = \"on\"");
  }
}

void check_batch(const Policy& policy) {
  if (!policy.batch) {
    return;
  }
  const Policy::Batch& batch = *policy.batch;
  if (!(batch.target_exposed > 0 && batch.target_exposed < 1)) {
    refuse_whole(policy, "target_exposed of the batch is " + format_number(batch.target_exposed, 3) +
                             "; give a share above 0 and below 1");
  }
  if (batch.min_accumulation < 1 || batch.min_accumulation > batch.max_accumulation ||
      batch.max_accumulation > policy::kMaxAccumulation) {
    refuse_whole(policy, policy::contradiction(batch));
  }
  if (policy.deterministic) {
    refuse_whole(policy, "[batch] advises by measurement, which deterministic forbids; remove one of the two");
  }
}

void check_measuring(const Policy& policy) {
  if (policy.link && !(policy.link->bytes_per_second > 0 && std::isfinite(policy.link->bytes_per_second))) {
    refuse_whole(policy, "the link carries " + format_number(policy.link->bytes_per_second, 3) +
                             " bytes a second; give its bandwidth, or no link, and it is measured");
  }
  if (policy.link && policy.link->latency.count() < 0) {
    refuse_whole(policy, "the latency of the link is below 0");
  }
  if (policy.auto_options.window == 0 || !(policy.auto_options.gain >= 0) || !(policy.auto_options.cost >= 0)) {
    refuse_whole(policy, "a window of " + std::to_string(policy.auto_options.window) + " steps, a least gain of " +
                             format_number(policy.auto_options.gain, 3) + " and a cost of " +
                             format_number(policy.auto_options.cost, 3) +
                             "; give a window from 1 on, a gain and a cost from 0 on");
  }
}

void check_automatic(const TensorPolicy& of_group, const std::string& who, const Policy& policy) {
  policy::check_allowed(of_group.allow);
  if (policy.deterministic) {
    refuse(policy, who + ": codec \"auto\" chooses by measurement, which deterministic = true forbids; name a codec");
  }
  if (of_group.second_hop || !of_group.warmup.empty()) {
    refuse(policy,
           who + ": codec \"auto\" goes with no second_hop and no warmup, which belong to one codec; remove them");
  }
}

// Inside nodes a library sums, in an order of its own.
void check_node_sums(const std::string& who, const Policy& policy) {
  if (policy.deterministic) {
    refuse(policy,
           who +
               ": over NCCL the algorithm hierarchical sums inside nodes in NCCL's order, which deterministic = true " +
               "forbids; write two_shot");
  }
  const CodecSpec intra = policy.tiers.intra_codec.value_or(CodecSpec::exact());
  if (intra != CodecSpec::exact() && intra != CodecSpec::parse("bf16")) {
    refuse(policy, "[tier.intra]: NCCL sums inside nodes in f32 or bf16, not by " + intra.to_string() +
                       "; write codec = \"exact\" or \"bf16\"");
  }
}

// A program may have made the policy.
void check_residuals(const Policy& policy) {
  const auto check = [&](const TensorPolicy& one) {
    const Residuals& residuals = one.residuals;
    if (!residuals.store.empty() &&
        (!memory::store_folder(residuals.store) || residuals.memory < policy::kLeastStoreMemory)) {
      refuse_whole(policy, "residuals have store = \"" + residuals.store + "\" and memory = " +
                               format_bytes(residuals.memory) + "; write \"file:DIR\" and at least 64KiB");
    }
  };
  check(policy.defaults);
  for (const Policy::Rule& rule : policy.rules) {
    check(rule.policy);
  }
}

}  // namespace

void check_policy(const Policy& policy, const PlanOptions& options) {
  if (!options.packs_frames && policy::packs_frames(policy)) {
    throw Error(ErrorCode::unsupported, "policy " + policy.source + ": " + std::string(policy::kPacksOnHosts));
  }
  if (!options.packs_frames && policy::places_residuals(policy)) {
    throw Error(ErrorCode::unsupported, "policy " + policy.source + ": " + std::string(policy::kResidualsOnHosts));
  }
  check_residuals(policy);
  check_batch(policy);
  check_measuring(policy);
}

TensorPolicy effective_policy(TensorPolicy of_group, const std::string& who, Plan& plan, const Policy& policy) {
  if (of_group.is_auto()) {
    check_automatic(of_group, who, policy);
  }
  if (of_group.algorithm == Algorithm::hierarchical) {
    const std::string why =
        plan.options.knows_tiers ? plan.tiers->why_not_hierarchical() : "over device memory there is no such algorithm";
    if (!why.empty()) {
      plan.notes.push_back(who + ": the algorithm hierarchical is two_shot here: " + why);
      of_group.algorithm = Algorithm::two_shot;
    } else if (plan.options.node_sums) {
      check_node_sums(who, policy);
    }
  }
  if (const DType dtype = of_group.residuals.dtype; dtype != DType::f32 && dtype != DType::bf16) {
    refuse(policy, who + ": residuals are f32 or bf16, not " + std::string(to_string(dtype)));
  }
  if (of_group.max_error) {
    throw Error(ErrorCode::unsupported,
                "policy " + policy.source + ", " + who + ": " + std::string(policy::kErrorOfCalls));
  }
  check_feedback(typical(of_group, plan), who, plan, policy);
  check_decay(typical(of_group, plan), who, plan, policy);
  const CodecSpec exact = CodecSpec::exact();
  if (of_group.algorithm == Algorithm::dense && of_group.codec != exact) {
    plan.warnings.push_back(who + ": codec " + of_group.codec.to_string() +
                            " has no effect with the algorithm dense, which sends uncompressed");
    of_group.codec = exact;
  }
  if (of_group.algorithm == Algorithm::dense) {
    of_group.warmup.clear();
    of_group.allow.clear();
  }
  if (of_group.second_hop && !exchange::encodes_at_owner(typical(of_group, plan).algorithm)) {
    plan.warnings.push_back(who + ": second_hop has no effect with the algorithm " +
                            std::string(to_string(of_group.algorithm)) + ", which encodes once");
    of_group.second_hop.reset();
  }
  return of_group;
}

}  // namespace gradwire::plan
