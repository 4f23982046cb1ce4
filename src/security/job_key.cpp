#include "security/job_key.hpp"

#include "base/environment.hpp"
#include "gradwire/error.hpp"
#include "security/key_file.hpp"

namespace gradwire::security {

std::optional<KeySetting> key_setting(const std::string& of_policy) {
  constexpr const char* kVariable = "GRADWIRE_KEY";
  if (const std::optional<std::string> value = environment(kVariable)) {
    return KeySetting{parse_key_setting(*value, kVariable), kVariable};
  }
  if (!of_policy.empty()) {
    return KeySetting{parse_key_setting(of_policy, "key in [security] of the policy"), "the policy"};
  }
  return std::nullopt;
}

void refuse_key(std::string_view who, std::string_view advice, const std::string& of_policy) {
  const std::optional<KeySetting> setting = key_setting(of_policy);
  if (!setting) {
    return;
  }
  throw Error(ErrorCode::unsupported, "security: " + setting->source + " names a key, but " + std::string(who) +
                                          " sends in clear text in this version; " + std::string(advice) +
                                          (advice.empty() ? "" : ", or ") +
                                          "remove the key, and run on a network where "
                                          "nobody listens");
}

}  // namespace gradwire::security
