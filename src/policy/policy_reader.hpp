// Reads a Policy from TOML text. Only this file and policy_values.hpp know TOML.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gradwire/policy.hpp"

namespace gradwire::policy {

inline constexpr std::size_t kMaxPolicyBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMaxRules = 1000;

/// See Policy::parse.
[[nodiscard]] Policy read_policy(std::string_view text, const std::string& source);

}  // namespace gradwire::policy
