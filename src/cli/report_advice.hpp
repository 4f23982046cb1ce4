// Advice for readers of a report about calls that passed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradwire::cli {

/// One line for each cause that a user can remove; empty where there is none.
[[nodiscard]] std::string advice_of(const nlohmann::json& report);

/// The reason why a report of compressed calls, or of calls that were being compared, has no measured saving.
[[nodiscard]] std::string why_not_measured(const nlohmann::json& report);

}  // namespace gradwire::cli
