// The output of `gradwire info --link`.
#pragma once

#include <cstddef>
#include <string>

#include "gradwire/statistics.hpp"

namespace gradwire::doctor {

/// A text about the links of `ranks` ranks on `hosts` hosts, and how a policy can use them, unless there is only one
/// host.
[[nodiscard]] std::string link_report(const LinkEstimate& link, std::size_t ranks, std::size_t hosts);

}  // namespace gradwire::doctor
