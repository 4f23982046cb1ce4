#include "gradwire/policy.hpp"

#include "base/read_file.hpp"
#include "gradwire/error.hpp"
#include "policy/policy_reader.hpp"
#include "policy/stage.hpp"

namespace gradwire {

Policy::Policy() : small(Small{}) {}

Policy Policy::uniform(CodecSpec codec, Algorithm algorithm) {
  Policy policy;
  policy.source = "uniform " + codec.to_string();
  policy.defaults.codec = codec;
  policy.defaults.algorithm = algorithm;
  policy.small.reset();
  return policy;
}

Policy Policy::automatic(const std::vector<CodecSpec>& allow) {
  Policy policy;
  policy.source = "automatic";
  policy.defaults.allow = allow;
  policy::check_allowed(policy.defaults.allow);
  policy.defaults.codec = policy.defaults.allow.front();
  policy.small.reset();
  policy.floor = kAutomaticFloor;
  return policy;
}

Policy Policy::load(const std::filesystem::path& file) {
  return parse(read_file(file, policy::kMaxPolicyBytes, "policy file", Pipes::read), file.string());
}

Policy Policy::parse(std::string_view text, const std::string& source) { return policy::read_policy(text, source); }

}  // namespace gradwire
