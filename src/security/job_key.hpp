// Where a job says which key it has: GRADWIRE_KEY, or else the key of [security] in its policy.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gradwire::security {

inline constexpr const char* kKeyVariable = "GRADWIRE_KEY";

struct KeySetting {
  std::filesystem::path file;
  std::string source;  // "GRADWIRE_KEY", "the policy"
};

/// Returns the setting that counts, or none where the job has no key. `of_policy` is the policy's text, "file:PATH" or
/// empty. A relative path begins at the directory in which the process started. Error(invalid_argument) for another
/// form, and for a variable that is set and empty: a script that found no key must not send in clear text.
[[nodiscard]] std::optional<KeySetting> key_setting(const std::string& of_policy = {});

/// Throws Error(unsupported) where the job has a key, in parts of gradwire that send in clear text: `who` names the
/// part, and `advice` what to use instead, or is empty.
void refuse_key(std::string_view who, std::string_view advice = {}, const std::string& of_policy = {});

/// For everything that sends from the memory of a device.
inline constexpr std::string_view kStageOnHost =
    "copy the gradients to host memory and use a session there, which encrypts what it sends";

}  // namespace gradwire::security
