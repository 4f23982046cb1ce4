// Files that hold a key: 32 bytes, for the eyes of their owner alone.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "security/key.hpp"

namespace gradwire::security {

/// The key in a file of exactly kKeyBytes. The file must be a regular one, or a link to one, of this user or of root,
/// without rights for group and others. It is checked after it was opened, so renaming files meanwhile changes nothing.
/// Error(invalid_argument) names the path, what is wrong and the fix.
[[nodiscard]] Key read_key_file(const std::filesystem::path& file);

/// Writes a key to a new file of mode 0600, and brings it to the disk. Error(invalid_argument) where the name exists,
/// also as a link, or the file cannot be written; nothing is left behind then.
void write_key_file(const std::filesystem::path& file, const Key& key);

}  // namespace gradwire::security
