// libgradwire_export.so, which brings the HTTP server along: loaded where it is asked for, linked nowhere.
#pragma once

#include <string>

#include "export/http_table.hpp"

namespace gradwire::metrics {

/// Loads it, for good. `file`: empty: beside this library or program, in the folder lib beside that, or where the
/// loader looks. Error(unsupported) says why it cannot be used, and what to install.
[[nodiscard]] const ExportTable& load_http_library(const std::string& file = {});

}  // namespace gradwire::metrics
