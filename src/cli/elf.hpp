// Reads from an ELF program how it is linked. Other files, such as scripts, have no such facts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gradwire::cli {

/// Whether it is a 32-bit program, of which nothing else is read here.
[[nodiscard]] bool is_32_bit(const std::filesystem::path& program);
/// Whether it is a program without a dynamic loader, which no preload reaches.
[[nodiscard]] bool statically_linked(const std::filesystem::path& program);

/// Whether it is no ELF program, but a file that another program interprets.
[[nodiscard]] bool is_script(const std::filesystem::path& program);

/// The libraries that the program names (DT_NEEDED), such as "libmpi.so.40", without those that these name in turn.
[[nodiscard]] std::vector<std::string> needed_libraries(const std::filesystem::path& program);

}  // namespace gradwire::cli
