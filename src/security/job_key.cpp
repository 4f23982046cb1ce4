#include "security/job_key.hpp"

#include <cstdlib>

#include "base/environment.hpp"
#include "base/secret_file.hpp"
#include "base/start_directory.hpp"
#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

std::filesystem::path file_of(const std::string& setting, std::string_view what) {
  return from_start_directory(secret_path(setting, what).string());
}

}  // namespace

std::optional<KeySetting> key_setting(const std::string& of_policy) {
  if (const std::optional<std::string> value = environment(kKeyVariable)) {
    return KeySetting{file_of(*value, kKeyVariable), kKeyVariable};
  }
  if (std::getenv(kKeyVariable) != nullptr) {  // NOLINT(concurrency-mt-unsafe): read only
    throw Error(ErrorCode::invalid_argument,
                std::string(kKeyVariable) +
                    " is empty, which is no key; write file: and the path of one (gradwire key new "
                    "makes it), or unset it to send in clear text");
  }
  if (!of_policy.empty()) {
    return KeySetting{file_of(of_policy, "key in [security] of the policy"), "the policy"};
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
