// What `gradwire info --link` prints.
#pragma once

#include <string>

#include "gradwire/statistics.hpp"

namespace gradwire::cli {

/// The links of `ranks` ranks on `hosts` hosts, and what a policy can make of them: nothing where all is one host.
[[nodiscard]] std::string link_report(const LinkEstimate& link, int ranks, int hosts);

}  // namespace gradwire::cli
