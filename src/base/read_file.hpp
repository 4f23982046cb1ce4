// Whole files of bounded size.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/regular_file.hpp"

namespace gradwire {

/// The content of the file. Error(invalid_argument), which begins with `what`, such as "policy file", and the name,
/// where it is a folder, a pipe or a device (unless `pipes` are read), is missing, cannot be read, or is longer than
/// `max_bytes`.
[[nodiscard]] std::string read_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what,
                                    Pipes pipes = Pipes::refused);

}  // namespace gradwire
