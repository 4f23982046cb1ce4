// libgradwire_export.so, which contains the HTTP server.
#pragma once

#include <string>

#include "watch/http_table.hpp"

namespace gradwire::watch {

inline constexpr const char* kExportFile = "libgradwire_export.so";

/// Loads the library, for ever, from `file`, or as load_companion() finds it. Error(unsupported) says why it cannot be
/// used, and what to install.
[[nodiscard]] const ExportTable& load_http_library(const std::string& file = {});

}  // namespace gradwire::watch
