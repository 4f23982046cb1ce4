// The message for an unknown key in a policy file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradwire::policy {

/// The name of which `text` is probably a misspelling; empty where it resembles none.
[[nodiscard]] std::string_view nearest_name(std::string_view text, const std::vector<std::string_view>& names);

/// `unknown key "codek" in a [[rule]]; did you mean "codec"?`: names the table where the key belongs, or the nearest of
/// the keys that are known at this place, or all of them.
[[nodiscard]] std::string unknown_key(std::string_view key, std::string_view where,
                                      const std::vector<std::string_view>& known);

}  // namespace gradwire::policy
