// The output of `gradwire doctor`, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {

[[nodiscard]] std::string report_text(const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings);
[[nodiscard]] std::string report_json(const std::vector<Facts>& facts, const Pairs& pairs, const Findings& findings);
/// The exit status: 1 with a problem, otherwise 0.
[[nodiscard]] int exit_status(const Findings& findings);

}  // namespace gradwire::doctor
