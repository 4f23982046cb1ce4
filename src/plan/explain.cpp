// Tables for people that show the plan and its reasons.
#include "base/text.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "exchange/model/sizes.hpp"
#include "exchange/window.hpp"
#include "plan/memory_use.hpp"
#include "plan/plan.hpp"
#include "policy/rule.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {
namespace {

std::string tensor_table(const Plan& plan) {
  std::vector<std::vector<std::string>> rows{{"tensor", "count", "dtype", "codec", "algorithm", "bucket", "why"}};
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    rows.push_back({tensor.info.name.empty() ? std::string("#").append(std::to_string(i)) : tensor.info.name,
                    std::to_string(tensor.info.count), std::string(gradwire::to_string(tensor.info.dtype)),
                    policy::codec_text(tensor.policy), std::string(to_string(tensor.policy.algorithm)),
                    std::to_string(plan.buckets[tensor.bucket].id), tensor.why});
  }
  return text::table(rows, "lrlllrl");
}

std::string travels_as(const Bucket& bucket) {
  return policy::to_string(bucket.stages, bucket.levels) +
         (bucket.decay == 1 ? "" : ", decay " + format_number(bucket.decay, 3)) +
         (bucket.preconditioned ? ", by scale" : "");
}

std::string bucket_table(const Plan& plan) {
  std::vector<std::vector<std::string>> rows{
      {"bucket", "group", "dtype", "travels as", "algorithm", "tensors", "bytes", "encoded", "ratio"}};
  for (const Bucket& bucket : plan.buckets) {
    const std::uint64_t bytes = bucket.count * element_bytes(bucket.dtype);
    const std::uint64_t encoded = codec::Codec(bucket.codec, bucket.dtype).payload_bytes(bucket.count);
    rows.push_back({std::to_string(bucket.id), plan.groups[bucket.group].name,
                    std::string(gradwire::to_string(bucket.dtype)), travels_as(bucket),
                    std::string(to_string(bucket.algorithm)), std::to_string(bucket.parts.size()), format_bytes(bytes),
                    format_bytes(encoded),
                    encoded == 0 ? "-" : format_number(static_cast<double>(bytes) / static_cast<double>(encoded), 3)});
  }
  return text::table(rows, "rllllrrrr");
}

// Payload of one exchange of a bucket: of its gradients, or of the parameters that are synchronised instead.
std::uint64_t exchanged_bytes(const Bucket& bucket, bool at_step) {
  const bool averages = !at_step && bucket.sync.mode == Sync::Mode::every && !bucket.sync.outer;
  return averages ? bucket.count * element_bytes(bucket.dtype) * bucket.parameters
                  : codec::Codec(bucket.codec, bucket.dtype).payload_bytes(bucket.count);
}

std::string describe_messages(const TensorPolicy& policy, std::uint32_t parameters) {
  if (policy.sync.mode != Sync::Mode::every || policy::is_step(policy.sync)) {
    return "gradients, " + policy::codec_text(policy);
  }
  return policy.sync.outer ? "changes, " + policy::codec_text(policy)
                           : (parameters > 1 ? "parameters and state, exact" : "parameters, exact");
}

// A table of the bytes that each group sends in a step, on average, once its mode has begun.
std::string sync_table(const Plan& plan) {
  std::vector<std::vector<std::string>> rows{
      {"group", "sync", "behind by", "what travels", "encoded a step", "of step"}};
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const TensorPolicy& policy = plan.groups[i].policy;
    double bytes = 0;
    double at_step = 0;
    std::uint32_t parameters = 0;
    for (const Bucket& bucket : plan.buckets) {
      if (bucket.group == i) {
        at_step += static_cast<double>(exchanged_bytes(bucket, true));
        bytes += static_cast<double>(exchanged_bytes(bucket, policy::is_step(policy.sync))) / policy.sync.every;
        parameters = bucket.parameters;
      }
    }
    rows.push_back({plan.groups[i].name, policy::to_string(policy.sync), policy::bound_of(policy.sync),
                    describe_messages(policy, parameters), format_bytes(static_cast<std::uint64_t>(bytes)),
                    at_step == 0 ? "-" : format_number(bytes / at_step, 3)});
  }
  return '\n' + text::table(rows, "llllrr") +
         "(encoded a step: payload on average; of step: its share of what sync = \"step\" would send)\n";
}

// The chosen algorithms where the policy leaves them open.
std::string chosen_algorithms(const Plan& plan) {
  std::string text;
  for (std::size_t group = 0; plan.options.world_size > 1 && group < plan.groups.size(); ++group) {
    if (const std::string why = plan.why_algorithms(group); !why.empty()) {
      text += "algorithm of " + plan.groups[group].name + " by the cost model: " + why + '\n';
    }
  }
  return text;
}

// The bytes under way at once over host memory.
std::string in_flight(const Plan& plan) {
  std::string text = "in flight: " + std::to_string(exchange::kLeastLanes) + " chunks of " +
                     format_bytes(plan.host_chunk_bytes()) + " a shard; ";
  if (plan.link) {
    text += format_bytes(exchange::window_of(exchange::given_cluster(*plan.link, *plan.tiers))) + " on the link of " +
            plan.link->to_string() + ", where that is more; ";
  }
  return text + "more where that leaves the link idle; their frames take at most " +
         format_bytes(plan.in_flight_bytes) + "\n";
}

}  // namespace

std::string Plan::explain() const {
  std::string text =
      tensor_table(*this) + '\n' + bucket_table(*this) +
      "(buckets start in this order; encoded: payload without frame headers, of exact+zstd the most; ratio: bytes / "
      "encoded; all codecs but exact and exact+zstd are lossy)\n";
  text += chosen_algorithms(*this);
  if (has_modes()) {
    text += sync_table(*this);
  }
  if (options.world_size > 1) {
    text += "tiers: " + tiers->describe() + '\n';
    text += in_flight(*this);
    text += options.knows_tiers && !options.node_sums ? explain_memory(*this) : "";
  }
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + '\n';
  }
  for (const std::string& note : notes) {
    text += "note: " + note + '\n';
  }
  return text;
}

}  // namespace gradwire::plan
