#include "plan/call_plan.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"
#include "policy/bounds.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {
namespace {

std::string rules_text(const std::vector<std::size_t>& rules) {
  std::string text = rules.size() == 1 ? "rule" : "rules";
  for (const std::size_t rule : rules) {
    text += (rule == rules.front() ? " " : ", ") + std::to_string(rule + 1);
  }
  return text;
}

// The codec as the policy states it, before a world size is known.
std::string asked(const TensorPolicy& policy) {
  std::string text;
  const std::string roles = policy.roles ? ", roles " + std::string(policy::to_string(*policy.roles)) : "";
  const std::string bound = policy.max_error ? ", max error " + format_number(*policy.max_error) : "";
  if (policy.is_auto()) {
    return policy::codec_text(policy) + ", algorithm " + std::string(to_string(policy.algorithm)) + bound + roles;
  }
  for (const Warmup& stage : policy.warmup) {
    text += "until step " + std::to_string(stage.until_step) + " " + stage.codec.to_string() + ", then ";
  }
  text += policy.codec.to_string() + ", algorithm " + std::string(to_string(policy.algorithm)) + ", error feedback " +
          std::string(policy::to_string(policy.error_feedback));
  return (policy.second_hop ? text + ", second hop " + policy.second_hop->to_string() : text) + bound + roles;
}

// The ways in which a call with codec = "auto" may be compressed.
std::vector<policy::Stage> ways_of(const TensorPolicy& policy, int parts, const std::optional<CodecSpec>& intra,
                                   AutoFeedback feedback) {
  std::vector<policy::Stage> ways;
  for (const policy::Level& level : policy::make_levels(policy, parts, intra)) {
    const bool allowed = !level.stage.error_feedback || feedback == AutoFeedback::where_allowed;
    if (level.algorithm != Algorithm::dense && allowed) {
      ways.push_back(level.stage);
    }
  }
  return ways;
}

bool uncompressed(const std::vector<policy::Stage>& stages, DType dtype) {
  const auto compresses = [dtype](const CodecSpec& spec) {
    const codec::Codec codec(spec, dtype);
    return codec.lossy() || codec.packed();
  };
  return std::none_of(stages.begin(), stages.end(), [&](const policy::Stage& stage) {
    return compresses(stage.codec) || compresses(stage.second_hop) || compresses(stage.intra.value_or(stage.codec));
  });
}

}  // namespace

std::string_view to_string(Pass pass) noexcept {
  switch (pass) {
    case Pass::no: return "compressed";
    case Pass::below_floor: return "below the floor";
    case Pass::f64_not_asked: return "f64 without a rule with dtype = \"f64\"";
    case Pass::exact: return "the policy asks for exact values";
    case Pass::codec_refused: return "the codec does not support this dtype";
  }
  return "unknown";
}

CallPlanner::CallPlanner(Policy policy, AutoFeedback feedback)
    : policy_(std::move(policy)), feedback_(feedback), matchers_(policy::compile_rules(policy_)) {
  const auto waits = [](const TensorPolicy& one) { return !policy::is_step(one.sync); };
  if (waits(policy_.defaults) || std::any_of(policy_.rules.begin(), policy_.rules.end(),
                                             [&](const Policy::Rule& rule) { return waits(rule.policy); })) {
    throw Error(ErrorCode::unsupported, "policy " + policy_.source +
                                            ": sync other than \"step\" needs a session; calls of MPI and NCCL must "
                                            "hold their results when they return, so remove it");
  }
  if (!policy_.security.key.empty()) {
    throw Error(ErrorCode::unsupported, "policy " + policy_.source +
                                            ": key in [security] needs a session; calls without one are sent in clear "
                                            "text, so remove it");
  }
  const auto check_bound = [&](const TensorPolicy& one, const std::string& who) {
    const std::string problem = one.max_error ? policy::max_error_problem(*one.max_error) : "";
    if (!problem.empty()) {
      throw Error(ErrorCode::invalid_argument, "policy " + policy_.source + who + ": " + problem);
    }
  };
  check_bound(policy_.defaults, "");
  for (std::size_t rule = 0; rule < policy_.rules.size(); ++rule) {
    check_bound(policy_.rules[rule].policy, ", rule " + std::to_string(rule + 1));
  }
  const auto decays = [](const TensorPolicy& one) { return one.decay != 1; };
  if (decays(policy_.defaults) || std::any_of(policy_.rules.begin(), policy_.rules.end(),
                                              [&](const Policy::Rule& rule) { return decays(rule.policy); })) {
    throw Error(ErrorCode::unsupported,
                "policy " + policy_.source + ": decay needs a session; residuals of calls count in full, so remove it");
  }
  const auto keeps = [&](const TensorPolicy& one) {
    return one.is_auto() && ways_of(one, 2, std::nullopt, feedback_).size() < one.allow.size();
  };
  if (keeps(policy_.defaults) || std::any_of(policy_.rules.begin(), policy_.rules.end(),
                                             [&](const Policy::Rule& rule) { return keeps(rule.policy); })) {
    notes_.push_back("allow of " + policy_.source +
                     ": codecs with error feedback are not chosen for calls, which lose residuals where they pass; "
                     "name such a codec to have it always");
  }
  const auto note_selection = [&](const TensorPolicy& one, const std::string& who) {
    if (const std::string note = policy::selection_note(one.codec); !note.empty()) {
      notes_.push_back(who + policy_.source + ": " + note);
    }
  };
  note_selection(policy_.defaults, "");
  for (std::size_t rule = 0; rule < policy_.rules.size(); ++rule) {
    note_selection(policy_.rules[rule].policy, "rule " + std::to_string(rule + 1) + " of ");
  }
  std::vector<std::size_t> by_name;
  std::vector<std::size_t> by_ndim;
  std::vector<std::size_t> by_communicator;
  for (std::size_t rule = 0; rule < matchers_.size(); ++rule) {
    if (matchers_[rule].by_ndim()) {
      by_ndim.push_back(rule);
    } else if (matchers_[rule].by_name()) {
      by_name.push_back(rule);
    }
    if (matchers_[rule].by_communicator_name()) {
      by_communicator.push_back(rule);
    }
  }
  if (!by_communicator.empty()) {
    notes_.push_back(rules_text(by_communicator) + " of " + policy_.source +
                     " with `communicator_name`: ignored but by the drop-in for NCCL, whose communicators have names");
  }
  if (!by_name.empty()) {
    notes_.push_back(rules_text(by_name) + " of " + policy_.source +
                     " with `match`: ignored where calls have no names");
  }
  if (policy_.tiers.ranks_per_node) {
    notes_.push_back(
        "ranks_per_node of " + policy_.source +
        ": ignored where calls come on any communicator, but for auto over NCCL; the nodes are those that MPI "
        "finds");
  }
  if (policy::stores_residuals(policy_)) {
    throw Error(ErrorCode::unsupported,
                "policy " + policy_.source + ": residuals = { store = ... } needs a session; remove store and memory");
  }
  if (policy::places_residuals(policy_)) {
    notes_.push_back(policy_.source + ": " + std::string(policy::kResidualsOnHosts));
  }
  if (policy::packs_frames(policy_)) {
    notes_.push_back(policy_.source + ": " + std::string(policy::kPacksOnHosts));
  }
  const auto tiered = [](const TensorPolicy& one) { return one.algorithm == Algorithm::hierarchical; };
  if (tiered(policy_.defaults) || std::any_of(policy_.rules.begin(), policy_.rules.end(),
                                              [&](const Policy::Rule& rule) { return tiered(rule.policy); })) {
    notes_.push_back("the algorithm hierarchical of " + policy_.source +
                     ": two_shot over device memory (auto over NCCL times both), and where nodes have one rank each or "
                     "differ in size");
  }
  if (!by_ndim.empty()) {
    notes_.push_back(rules_text(by_ndim) + " of " + policy_.source + " with `ndim`: ignored, calls have no dimensions");
  }
}

bool CallPlanner::is_auto() const noexcept {
  return policy_.defaults.is_auto() || std::any_of(policy_.rules.begin(), policy_.rules.end(),
                                                   [](const Policy::Rule& rule) { return rule.policy.is_auto(); });
}

bool CallPlanner::bounds_errors() const noexcept {
  return policy_.defaults.max_error || std::any_of(policy_.rules.begin(), policy_.rules.end(),
                                                   [](const Policy::Rule& rule) { return rule.policy.max_error; });
}

bool CallPlanner::only_exact() const {
  return policy_.rules.empty() &&
         resolve({.count = policy_.floor + (1U << 30U), .communicator_size = 2}).pass == Pass::exact;
}

bool CallPlanner::only_automatic() const noexcept {
  return policy_.defaults.is_auto() &&
         std::all_of(policy_.rules.begin(), policy_.rules.end(), [](const Policy::Rule& rule) {
           return rule.policy.is_auto() && !rule.match.order && !rule.match.glob;
         });
}

CallPlan CallPlanner::resolve(const CallInfo& call) const {
  const TensorInfo info{.name = std::string(call.name),
                        .count = call.count,
                        .dtype = call.dtype,
                        .order = call.order,
                        .communicator_size = call.communicator_size,
                        .communicator_name = std::string(call.communicator_name)};
  CallPlan plan;
  plan.policy = policy_.defaults;
  plan.why = "default";
  for (std::size_t rule = 0; rule < matchers_.size(); ++rule) {
    if (!matchers_[rule].by_ndim() && matchers_[rule].matches(info)) {
      plan.rule = rule;
      plan.policy = policy_.rules[rule].policy;
      plan.why = policy::rule_place(policy_, rule) + " matched " + matchers_[rule].describe();
      break;
    }
  }
  plan.any_role =
      plan.policy.roles ? *plan.policy.roles == Roles::all : plan.rule && matchers_[*plan.rule].names_calls();
  if (plan.policy.algorithm == Algorithm::dense) {
    plan.policy.codec = CodecSpec::exact();
    plan.policy.warmup.clear();
  }
  const int parts = static_cast<int>(call.communicator_size);
  plan.stages = policy::make_stages(plan.policy, parts, policy_.tiers.intra_codec);
  plan.ways = ways_of(plan.policy, parts, policy_.tiers.intra_codec, feedback_);
  if (policy::tensor_bytes(info) < policy_.floor) {
    plan.pass = Pass::below_floor;
  } else if (call.dtype == DType::f64 && !(plan.rule && policy_.rules[*plan.rule].match.dtype == DType::f64)) {
    plan.pass = Pass::f64_not_asked;
  } else {
    try {
      plan.pass = uncompressed(plan.policy.is_auto() ? plan.ways : plan.stages, call.dtype) ? Pass::exact : Pass::no;
    } catch (const Error&) {  // of Codec, for a dtype that it does not support
      plan.pass = Pass::codec_refused;
    }
  }
  return plan;
}

std::string CallPlanner::describe() const {
  std::string text;
  const auto add = [&](const std::string& item, const std::string& value) { text += item + ": " + value + '\n'; };
  add("wire version", std::to_string(kWireVersion));
  add("floor", std::to_string(policy_.floor));
  add("chunk bytes",
      std::to_string(policy_.chunk_bytes.value_or(kDefaultChunkBytes)) + (policy_.chunk_bytes ? " as asked" : ""));
  if (policy_.tiers.intra_codec) {
    add("intra codec", policy_.tiers.intra_codec->to_string());
  }
  add("device residuals", std::to_string(policy_.memory.device_residuals));
  if (policy_.link) {  // the choice of algorithms depends on it
    add("link", policy_.link->to_string());
  }
  if (policy_.tiers.ranks_per_node) {  // auto's ways over NCCL depend on it
    add("ranks per node", std::to_string(*policy_.tiers.ranks_per_node));
  }
  add("defaults", asked(policy_.defaults));
  for (std::size_t rule = 0; rule < matchers_.size(); ++rule) {
    const RuleMatch& match = policy_.rules[rule].match;  // exact sizes, since describe() of a rule rounds them
    add("rule " + std::to_string(rule + 1), text::quote(matchers_[rule].describe()) + " (" +
                                                std::to_string(match.min_bytes.value_or(0)) + " to " +
                                                (match.max_bytes ? std::to_string(*match.max_bytes) : "any") +
                                                " bytes) " + asked(policy_.rules[rule].policy));
  }
  return text;
}

}  // namespace gradwire::plan
