// Whole files of bounded size.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/regular_file.hpp"

namespace gradwire {

/// What the file holds. Error (invalid_argument) begins with `what`, such as "policy file", and the name: a folder, a
/// pipe or a device unless `pipes` are read, not there, not to be read, longer than `max_bytes`.
[[nodiscard]] std::string read_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what,
                                    Pipes pipes = Pipes::refused);

}  // namespace gradwire
