// The output of `gradwire info --link`.
#pragma once

#include <string>

#include "gradwire/statistics.hpp"

namespace gradwire::cli {

/// A text about the links of `ranks` ranks on `hosts` hosts, and how a policy can use them, unless there is only one
/// host.
[[nodiscard]] std::string link_report(const LinkEstimate& link, int ranks, int hosts);

}  // namespace gradwire::cli
