#include "plan/plan_algorithms.hpp"

#include <map>
#include <utility>

#include "codec/codec.hpp"
#include "exchange/model/algorithm_choice.hpp"

namespace gradwire::plan {
namespace {

// The number of parts that an owner adds up.
int parts_of(const TensorPolicy& policy, const Plan& plan) {
  return policy.algorithm == Algorithm::hierarchical ? plan.tiers->nodes() : plan.options.world_size;
}

// A library's sums inside nodes are exact ones, unless the policy says otherwise.
std::optional<CodecSpec> intra_of(const Plan& plan, const Policy& all) {
  return plan.options.node_sums ? all.tiers.intra_codec.value_or(CodecSpec::exact()) : all.tiers.intra_codec;
}

// Whether ranks may choose hierarchical by themselves: a library's sums have an order of their own.
bool chooses_tiers(const Plan& plan) { return plan.options.knows_tiers && !plan.options.node_sums; }

exchange::AlgorithmChoice choice_for(const Bucket& bucket, const TensorPolicy& policy, const Plan& plan,
                                     const Policy& all, const std::optional<Link>& link) {
  if (!chooses_tiers(plan)) {
    return {Algorithm::two_shot, "over device memory"};
  }
  return exchange::choose_algorithm({.codec = policy.codec,
                                     .second_hop = policy.second_hop,
                                     .intra = all.tiers.intra_codec,
                                     .dtype = bucket.dtype,
                                     .count = bucket.count,
                                     .native = !plan.deterministic && policy.warmup.empty() && !policy.is_auto()},
                                    *plan.tiers, link);
}

}  // namespace

TensorPolicy typical(TensorPolicy policy, const Plan& plan) {
  if (policy.algorithm == Algorithm::automatic) {
    const bool tiered = chooses_tiers(plan) && plan.tiers->why_not_hierarchical().empty() && policy.codec.k == 0;
    policy.algorithm = tiered ? Algorithm::hierarchical : Algorithm::two_shot;
  }
  return policy;
}

std::vector<policy::Stage> stages_of(const TensorPolicy& policy, const Plan& plan, const Policy& all) {
  return policy::make_stages(policy, parts_of(policy, plan), intra_of(plan, all));
}

std::vector<policy::Level> levels_of(const TensorPolicy& policy, const Plan& plan, const Policy& all) {
  return policy::make_levels(policy, parts_of(policy, plan), intra_of(plan, all));
}

void settle(Bucket& bucket, const Plan& plan, const Policy& all, const std::optional<Link>& link) {
  TensorPolicy policy = plan.groups[bucket.group].policy;
  if (policy.algorithm == Algorithm::automatic) {
    exchange::AlgorithmChoice choice = choice_for(bucket, policy, plan, all, link);
    policy.algorithm = choice.algorithm;
    bucket.why = std::move(choice.why);
  }
  bucket.algorithm = policy.algorithm;
  bucket.stages = stages_of(policy, plan, all);
  bucket.levels = levels_of(policy, plan, all);
  for (const policy::Level& level : bucket.levels) {
    (void)codec::Codec(level.stage.codec, bucket.dtype);
  }
  for (const policy::Stage& stage : bucket.stages) {
    (void)codec::Codec(stage.codec, bucket.dtype);
    (void)codec::Codec(stage.second_hop, bucket.dtype);
    (void)codec::Codec(stage.intra.value_or(stage.codec), bucket.dtype);
  }
}

void settle_again(Plan& plan, const Policy& all, const Link& measured) {
  for (Bucket& bucket : plan.buckets) {
    if (!bucket.levels.empty() && !bucket.why.empty()) {
      settle(bucket, plan, all, measured);
      for (const Bucket::Part& part : bucket.parts) {
        plan.tensors[part.tensor].policy.algorithm = bucket.algorithm;
      }
    }
  }
}

std::string Plan::algorithms(std::size_t group) const {
  std::map<Algorithm, std::size_t> used;
  for (const Bucket& bucket : buckets) {
    used[bucket.algorithm] += bucket.group == group ? 1 : 0;
  }
  std::erase_if(used, [](const auto& one) { return one.second == 0; });
  std::string text;
  for (const auto& [algorithm, count] : used) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(algorithm)) +
            (used.size() > 1 ? " " + std::to_string(count) : "");
  }
  return text;
}

std::string Plan::why_algorithms(std::size_t group) const {
  std::map<Algorithm, std::string> reasons;
  for (const Bucket& bucket : buckets) {
    if (bucket.group == group && !bucket.why.empty()) {
      reasons.try_emplace(bucket.algorithm, bucket.why);
    }
  }
  std::string text;
  for (const auto& [algorithm, why] : reasons) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(algorithm)) + ": " + why;
  }
  return text;
}

}  // namespace gradwire::plan
