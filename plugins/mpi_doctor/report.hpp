// What `gradwire doctor` prints, and writes as JSON.
#pragma once

#include <string>
#include <vector>

#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {

[[nodiscard]] std::string report_text(const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings);
[[nodiscard]] std::string report_json(const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings);
/// 1 with a problem, else 0.
[[nodiscard]] int exit_status(const Findings& findings);

}  // namespace gradwire::doctor
