// What compression would do for a job that only observed: forecast, never measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradwire::cli {

/// The job only observed: no codec was named, so no bit of it changed.
[[nodiscard]] bool only_observed(const nlohmann::json& report);
/// Ranks whose calls the report counts: all, but of a group of PyTorch rank 0 alone.
[[nodiscard]] double counted_ranks(const nlohmann::json& report);
/// What leads the table: the saving that is forecast, and the command that brings it; nothing where the job compressed.
[[nodiscard]] std::string forecast_lead(const nlohmann::json& report);
/// The classes that a codec could compress; empty where there are none.
[[nodiscard]] std::string forecast_table(const nlohmann::json& report);

}  // namespace gradwire::cli
