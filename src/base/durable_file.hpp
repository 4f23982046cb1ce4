// Files that are whole or not there, also after a crash.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace gradwire {

/// Makes `directory`, lets `write` fill `directory`/`name`.tmp, brings its bytes to the disk, and renames it.
/// Error(invalid_argument) names what cannot be written; what `write` throws passes through.
void write_durably(const std::filesystem::path& directory, const std::string& name,
                   const std::function<void(std::ostream&)>& write);

}  // namespace gradwire
