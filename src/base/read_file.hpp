// Whole files of bounded size.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace gradwire {

/// What the file holds. A file that never ends, such as /dev/zero, is read up to `max_bytes` and refused. Error
/// (invalid_argument) begins with `what`, such as "policy file", and the name: a folder, not there, not to be read, too
/// long.
[[nodiscard]] std::string read_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what);

}  // namespace gradwire
