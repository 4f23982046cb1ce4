// libgradwire_export.so, which brings the HTTP server along: loaded where it is asked for, linked nowhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "watch/http_table.hpp"

namespace gradwire::watch {

/// Where it may lie, seen from the library or program that holds this code: beside it; of a program in a folder bin
/// also in the folder of libraries beside that; of the module for Python also two folders up. Nowhere else: whatever is
/// found runs at once.
[[nodiscard]] std::vector<std::string> http_library_places(const std::filesystem::path& code, bool program);

/// Loads it, for good. `file`: empty: from these places, if nobody but this user, root and the owner of this code could
/// have put it there, or from where the loader looks. Error(unsupported) says why it cannot be used, and what to
/// install.
[[nodiscard]] const ExportTable& load_http_library(const std::string& file = {});

}  // namespace gradwire::watch
