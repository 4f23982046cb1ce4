// The forecast of what compression would gain in a job that was only observed; nothing of it is measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradwire::cli {

/// Whether the job was only observed: no codec was named, so no bit of it changed.
[[nodiscard]] bool only_observed(const nlohmann::json& report);
/// Number of ranks whose calls the report counts: all, except that for a group of PyTorch only rank 0 counts.
[[nodiscard]] double counted_ranks(const nlohmann::json& report);
/// The line above the table: the saving that is forecast, and the command for it; empty where the job compressed.
[[nodiscard]] std::string forecast_lead(const nlohmann::json& report);
/// A table of the classes that a codec could compress; empty where there are none.
[[nodiscard]] std::string forecast_table(const nlohmann::json& report);

}  // namespace gradwire::cli
