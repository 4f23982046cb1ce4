#include "base/secret_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "codec/codec.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/model/algorithm_choice.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"
#include "policy/rule.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"

namespace gradwire::cli {
namespace {

using policy::Stage;

constexpr double kF32Bits = 32;

std::vector<std::string> row(const std::string& rule, const std::string& line, const std::string& matches,
                             const TensorPolicy& policy, const Policy& all, int ranks) {
  const std::vector<Stage> stages = policy::make_stages(policy, ranks, all.tiers.intra_codec);
  const CodecSpec& smallest = policy.is_auto() ? policy.allow.back() : stages.back().codec;
  const bool packed = codec::Codec(smallest, DType::f32).packed();
  return {rule,
          line,
          matches,
          policy::to_string(stages, policy::make_levels(policy, ranks, all.tiers.intra_codec)),
          std::string(to_string(policy.algorithm)),
          packed
              ? "by content"
              : (policy.is_auto() ? "up to " : "") + format_number(kF32Bits / exchange::bits_per_element(smallest), 3)};
}

// Notes about how jobs without a session use the policy.
std::vector<std::string> notes_of_calls(const Policy& policy) {
  try {
    const plan::CallPlanner calls(policy);
    std::vector<std::string> notes = calls.notes();
    if (calls.bounds_errors()) {
      notes.emplace_back(
          "sessions and the drop-in for NCCL refuse this policy: max_error is for calls that the library can "
          "make as well");
    }
    return notes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) {
      throw;
    }
    return {std::string("for sessions only: ") + error.what()};
  }
}

// Prints the choices of algorithm = "auto", as far as the file says what nodes and links there are.
void print_algorithms(const std::string& who, const TensorPolicy& policy, const Policy& all, int ranks,
                      std::ostream& out) {
  if (policy.algorithm != Algorithm::automatic || ranks < 2) {
    return;
  }
  const auto each = static_cast<int>(all.tiers.ranks_per_node.value_or(1));
  if (ranks % each != 0) {
    return;  // a session refuses it
  }
  const auto tiers = exchange::Tiers::in_rows(static_cast<std::uint32_t>(each), ranks);
  out << "algorithm of " << who << ", "
      << (all.tiers.ranks_per_node ? tiers.describe() : "where each node has one rank") << ": "
      << exchange::algorithms_by_size({.codec = policy.codec,
                                       .second_hop = policy.second_hop,
                                       .intra = all.tiers.intra_codec,
                                       .native = !all.deterministic && policy.warmup.empty() && !policy.is_auto()},
                                      tiers, all.link)
      << '\n';
}

void print_sync(const std::string& who, const Sync& sync, std::ostream& out) {
  if (!policy::is_step(sync)) {
    out << "sync of " << who << ": " << policy::to_string(sync) << '\n';
  }
}

void print_bound(const std::string& who, const std::optional<double>& bound, std::ostream& out) {
  if (bound) {
    out << "bound of " << who << ": calls pass where their relative error is above " << format_number(*bound, 3)
        << '\n';
  }
}

void print_roles(const std::string& who, const std::optional<Roles>& roles, std::ostream& out) {
  if (roles) {
    out << "roles of " << who << ": "
        << (*roles == Roles::all ? "all calls of NCCL count as gradients, at once"
                                 : "calls of NCCL pass until they are known to be gradients")
        << '\n';
  }
}

void print_elastic(const Policy::Elastic& elastic, std::ostream& out) {
  out << "elastic, for sessions that go on when ranks end: a silent rank is left out after "
      << format_duration(elastic.suspect) << "; the job ends with fewer than " << elastic.min_ranks
      << (elastic.min_ranks == 1 ? " rank" : " ranks");
  if (elastic.spares > 0) {
    out << "; spares: " << elastic.spares;
  }
  if (elastic.replicate > 0) {
    out << "; residuals are copied every " << elastic.replicate << " steps, "
        << (elastic.replicate_exact ? "exactly" : "as bf16 (lossy)") << (elastic.replicate_packed ? ", packed" : "");
  }
  if (elastic.expel_slower_than > 0) {
    out << "; a rank that makes steps " << format_number(elastic.expel_slower_than) << " times as long must leave";
  }
  out << (elastic.trust_resets ? "; a reset connection is the end of its process\n" : "\n");
}

void print_save_as(bool packed, std::ostream& out) {
  if (packed) {
    out << "saved files are packed by libzstd, with the same bits\n";
  }
}

void print_device(const Policy::Device& device, std::ostream& out) {
  out << "device: kernels have "
      << (device.blocks ? "at most " + std::to_string(*device.blocks) : std::string("as many"))
      << " blocks of 256 threads" << (device.blocks ? "" : " as they have work for") << ", and "
      << (device.high_priority ? "high" : "normal") << " priority"
      << (device.join_bytes > 0 ? "; buckets below " + format_bytes(device.join_bytes) + " are made together" : "")
      << "\n";
}

}  // namespace

int check(const std::string& file, int ranks, std::ostream& out) {
  const Policy policy = Policy::load(file);
  const std::vector<policy::RuleMatcher> matchers = policy::compile_rules(policy);

  std::vector<std::vector<std::string>> rows{
      {"rule", "line", "matches", "travels as", "algorithm", "smaller than f32"}};
  for (std::size_t rule = 0; rule < matchers.size(); ++rule) {
    rows.push_back(row(std::to_string(rule + 1), std::to_string(policy.rules[rule].line), matchers[rule].describe(),
                       policy.rules[rule].policy, policy, ranks));
  }
  if (policy.small) {
    rows.push_back(row("small", "", "others below " + format_bytes(policy.small->below) + ", in a session",
                       policy::policy_of_small(policy), policy, ranks));
  }
  rows.push_back(row("default", "", "all others", policy.defaults, policy, ranks));

  out << file << ": no mistakes; the first rule that matches decides (on " << ranks << " ranks):\n\n"
      << text::table(rows, "rrlllr")
      << "\ntravels as: codecs of the stages and of the second hop; smaller than f32: by the bits of an element\n"
         "all codecs but exact and exact+zstd are lossy; dense is exact\nbuckets of a session: "
      << (policy.bucket_bytes == 0 ? "by the cost model" : format_bytes(policy.bucket_bytes))
      << "; chunks on the wire: " << format_bytes(policy.chunk_bytes.value_or(kDefaultChunkBytes))
      << (policy.chunk_bytes ? "" : ", over device memory as fits") << "; frames in flight: up to "
      << format_bytes(policy.in_flight_bytes) << "\ncalls of a job without a session: below "
      << format_bytes(policy.floor) << " they pass through uncompressed\n";
  if (policy.tiers.ranks_per_node) {
    const std::uint32_t each = *policy.tiers.ranks_per_node;
    out << "tiers: " << each << " ranks in a row share a node"
        << (ranks > 1 && static_cast<std::uint32_t>(ranks) % each != 0
                ? "; a session of " + std::to_string(ranks) + " ranks refuses that"
                : std::string())
        << '\n';
  }
  for (std::size_t rule = 0; rule < policy.rules.size(); ++rule) {
    print_algorithms("rule " + std::to_string(rule + 1), policy.rules[rule].policy, policy, ranks, out);
  }
  print_algorithms("all others", policy.defaults, policy, ranks, out);
  if (policy.deterministic) {
    out << "deterministic: no native sums\n";
  }
  if (policy.strict) {
    out << "strict: in a session, a rule that matches no tensor or is ignored is an error\n";
  }
  for (std::size_t rule = 0; rule < policy.rules.size(); ++rule) {
    print_sync("rule " + std::to_string(rule + 1), policy.rules[rule].policy.sync, out);
    print_bound("rule " + std::to_string(rule + 1), policy.rules[rule].policy.max_error, out);
    print_roles("rule " + std::to_string(rule + 1), policy.rules[rule].policy.roles, out);
  }
  print_sync("all others", policy.defaults.sync, out);
  print_bound("all others", policy.defaults.max_error, out);
  print_roles("all others", policy.defaults.roles, out);
  if (policy.device != Policy::Device{}) {
    print_device(policy.device, out);
  }
  if (policy.memory != Policy::Memory()) {
    if (policy.memory.limit) {
      out << "memory: sessions take up to " << format_bytes(*policy.memory.limit) << " of host memory on each rank\n";
    }
    out << "memory: a drop-in keeps up to " << format_bytes(policy.memory.device_residuals)
        << " of residuals on a device for each communicator\n";
  }
  if (!policy.security.key.empty()) {
    out << "security: sessions in host memory encrypt what they send, with the key in "
        << text::printable(secret_path(policy.security.key, "key").string()) << '\n';
  }
  if (policy.security.lock_memory || policy.security.no_dump) {
    const char* const both = policy.security.lock_memory && policy.security.no_dump ? " and " : "";
    out << "security: host memory of sessions stays out of " << (policy.security.lock_memory ? "swap" : "") << both
        << (policy.security.no_dump ? "core dumps" : "") << '\n';
  }
  if (policy.elastic) {
    print_elastic(*policy.elastic, out);
  }
  print_save_as(policy.save_packed, out);
  for (const std::string& note : notes_of_calls(policy)) {
    out << "note: " << note << '\n';
  }
  return 0;
}

}  // namespace gradwire::cli
