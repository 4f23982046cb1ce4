// What an ELF program says of how it is linked. Anything else, such as a script, says nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gradwire::cli {

/// Whether it is a program of 32 bits: of those, nothing else is read here.
[[nodiscard]] bool is_32_bit(const std::filesystem::path& program);
/// Whether it is a program without a dynamic loader, which no preload reaches.
[[nodiscard]] bool statically_linked(const std::filesystem::path& program);

/// Whether it is a file that some other program reads: no ELF program.
[[nodiscard]] bool is_script(const std::filesystem::path& program);

/// The libraries that it names (DT_NEEDED), such as "libmpi.so.40"; not those that these name in turn.
[[nodiscard]] std::vector<std::string> needed_libraries(const std::filesystem::path& program);

}  // namespace gradwire::cli
