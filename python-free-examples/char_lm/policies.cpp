#include "policies.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "gradwire/error.hpp"

namespace char_lm {
namespace {

using gradwire::CodecSpec;

// A model of a few MB would fit into one default bucket, whose reduction starts only when the backward pass is over.
constexpr std::uint64_t kBucketBytes = 1ULL << 20;

// Returns whether gradients arrive in rare, large portions, against which Adam must be guarded.
bool is_coarse(const CodecSpec& codec) {
  return codec.k != 0 || codec == CodecSpec::parse("int2") || codec == CodecSpec::parse("sign");
}

gradwire::Policy policy_of(const CodecSpec& codec, const PolicyOptions& options) {
  gradwire::Policy policy;
  policy.defaults.codec = codec;
  policy.defaults.decay = options.decay;
  if (!options.second_hop.empty()) {
    policy.defaults.second_hop = CodecSpec::parse(options.second_hop);
  }
  policy.small->below = options.small;
  if (options.small == 0) {
    policy.small.reset();
  }
  return policy;
}

// Parses "every(30)" or "every(30)+CODEC".
NamedPolicy local_steps(const std::string& name, const PolicyOptions& options, int from_step) {
  constexpr std::string_view kBegin = "every(";
  gradwire::Sync sync;
  sync.mode = gradwire::Sync::Mode::every;
  const char* const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(name.data() + kBegin.size(), end, sync.every);
  const std::string_view rest(after, static_cast<std::size_t>(end - after));
  if (error != std::errc() || !rest.starts_with(")") || (rest.size() > 1 && !rest.starts_with(")+"))) {
    throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                          "policy \"" + name + "\": write every(STEPS) or every(STEPS)+CODEC, such as every(30)+int8");
  }
  NamedPolicy result{.name = name, .policy = gradwire::Policy::uniform("exact"), .local_steps = true};
  if (rest.size() > 1) {
    result.policy = policy_of(CodecSpec::parse(rest.substr(2)), options);
    sync.outer = options.outer;
  }
  if (from_step > 0) {
    sync.from_step = static_cast<std::uint64_t>(from_step);
    result.policy.defaults.warmup = {{sync.from_step, CodecSpec::parse("int8")}};
    result.settled_at = from_step;
  }
  result.policy.defaults.sync = sync;
  return result;
}

NamedPolicy compressed(const std::string& name, const PolicyOptions& options, int warm_up) {
  NamedPolicy result{.name = name, .policy = policy_of(CodecSpec::parse(name), options)};
  gradwire::TensorPolicy& defaults = result.policy.defaults;
  if (is_coarse(defaults.codec) && warm_up > 0) {
    defaults.warmup = {{static_cast<std::uint64_t>(warm_up), CodecSpec::parse("int8")}};
    result.settled_at = warm_up;
    result.freeze_second_moment_at = options.adam_guard ? warm_up : 0;
  }
  return result;
}

}  // namespace

NamedPolicy policy_of_file(const std::filesystem::path& file) {
  NamedPolicy result{.name = file.filename().string(), .policy = gradwire::Policy::load(file)};
  const auto consider = [&result](const gradwire::TensorPolicy& policy) {
    for (const gradwire::Warmup& warm_up : policy.warmup) {
      result.settled_at = std::max(result.settled_at, static_cast<int>(warm_up.until_step));
    }
    result.local_steps = result.local_steps || policy.sync.mode == gradwire::Sync::Mode::every;
  };
  consider(result.policy.defaults);
  for (const gradwire::Policy::Rule& rule : result.policy.rules) {
    consider(rule.policy);
  }
  return result;
}

NamedPolicy policy_named(const std::string& name, const PolicyOptions& options, int steps) {
  if (name.ends_with(".toml")) {
    NamedPolicy result = policy_of_file(name);
    result.name = std::filesystem::path(name).stem().string();
    return result;
  }
  const int warm_up = static_cast<int>(options.warm_up * steps);
  NamedPolicy result{.name = name, .policy = gradwire::Policy::uniform("exact")};
  if (name == "dense" || name == "dense+frozen") {
    result.freeze_second_moment_at = name == "dense" ? 0 : warm_up;
    result.settled_at = result.freeze_second_moment_at;
    if (name != "dense" && warm_up == 0) {
      throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                            "policy \"dense+frozen\": the second moment is frozen after the warm-up, and there is "
                            "none; give more --steps or --warm-up");
    }
  } else if (name == "auto") {
    result.policy = gradwire::Policy::automatic();
  } else if (name.starts_with("every(")) {
    result = local_steps(name, options, static_cast<int>(options.local_from * steps));
  } else {
    result = compressed(name, options, warm_up);
  }
  result.policy.bucket_bytes = kBucketBytes;
  if (options.chunk > 0) {
    result.policy.chunk_bytes = options.chunk;
  }
  return result;
}

}  // namespace char_lm
