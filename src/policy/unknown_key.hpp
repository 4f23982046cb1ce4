// What to say of a key that a policy file should not have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradwire::policy {

/// The name that `text` is probably a misspelling of; empty where it is like none.
[[nodiscard]] std::string_view nearest_name(std::string_view text, const std::vector<std::string_view>& names);

/// `unknown key "codek" in a [[rule]]; did you mean "codec"?`: names the table where the key belongs, or the nearest of
/// the keys that are known at this place, or all of them.
[[nodiscard]] std::string unknown_key(std::string_view key, std::string_view where,
                                      const std::vector<std::string_view>& known);

}  // namespace gradwire::policy
