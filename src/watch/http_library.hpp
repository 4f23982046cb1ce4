// libgradwire_export.so, which contains the HTTP server: it is loaded where it is asked for, and linked nowhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "watch/http_table.hpp"

namespace gradwire::watch {

/// The places where it may lie, seen from the library or program that contains this code: beside it; for a program in a
/// folder bin also in the folder of libraries beside that; for the module for Python also two folders up. No other
/// places are searched, since a file that is found runs at once.
[[nodiscard]] std::vector<std::string> http_library_places(const std::filesystem::path& code, bool program);

/// Loads the library, for ever. `file` empty: from these places, if only this user, root and the owner of this code
/// could have put it there, or from where the loader looks. Error(unsupported) says why it cannot be used, and what to
/// install.
[[nodiscard]] const ExportTable& load_http_library(const std::string& file = {});

}  // namespace gradwire::watch
