// The directory in which this process started: relative paths of environment variables are relative to it, whatever the
// job makes its current directory later.
#pragma once

#include <string>

namespace gradwire {

/// The path, absolute: behind the directory that was the current one as gradwire was loaded. An empty path stays empty.
[[nodiscard]] std::string from_start_directory(const std::string& path);

}  // namespace gradwire
