// What `gradwire info --link` prints.
#pragma once

#include <cstddef>
#include <string>

#include "gradwire/statistics.hpp"

namespace gradwire::doctor {

/// The links of `ranks` ranks on `hosts` hosts, and what a policy can make of them: nothing where all is one host.
[[nodiscard]] std::string link_report(const LinkEstimate& link, std::size_t ranks, std::size_t hosts);

}  // namespace gradwire::doctor
