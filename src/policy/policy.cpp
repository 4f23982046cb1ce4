#include "gradwire/policy.hpp"

#include "base/read_file.hpp"
#include "gradwire/error.hpp"
#include "policy/policy_reader.hpp"
#include "policy/stage.hpp"

namespace gradwire {

Policy::Policy() : small(Small{}) {}

Policy Policy::uniform(std::string_view codec, Algorithm algorithm) {
  Policy policy;
  policy.source = "uniform " + std::string(codec);
  policy.defaults.codec = CodecSpec::parse(codec);
  policy.defaults.algorithm = algorithm;
  policy.small.reset();
  return policy;
}

Policy Policy::automatic(const std::vector<std::string_view>& allow) {
  Policy policy;
  policy.source = "automatic";
  for (const std::string_view codec : allow) {
    policy.defaults.allow.push_back(CodecSpec::parse(codec));
  }
  policy::check_allowed(policy.defaults.allow);
  policy.defaults.codec = policy.defaults.allow.front();
  policy.small.reset();
  policy.floor = kAutomaticFloor;
  return policy;
}

Policy Policy::load(const std::filesystem::path& file) {
  return parse(read_file(file, policy::kMaxPolicyBytes, "policy file"), file.string());
}

Policy Policy::parse(std::string_view text, const std::string& source) { return policy::read_policy(text, source); }

}  // namespace gradwire
