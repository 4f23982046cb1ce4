// What the reader of a report can do about calls that passed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradwire::cli {

/// One line for each cause that a user can mend; empty where there is none.
[[nodiscard]] std::string advice_of(const nlohmann::json& report);

/// Why a report of compressed calls, or of calls that were being compared, has no saving that was measured.
[[nodiscard]] std::string why_not_measured(const nlohmann::json& report);

}  // namespace gradwire::cli
