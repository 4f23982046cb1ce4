// The directory in which this process started: relative paths in environment variables are relative to it, even if the
// job changes its current directory later.
#pragma once

#include <string>

namespace gradwire {

/// The path made absolute, relative to the directory that was current when gradwire was loaded. An empty path stays
/// empty.
[[nodiscard]] std::string from_start_directory(const std::string& path);

}  // namespace gradwire
