// Opens the files that gradwire writes. No other source file makes one, so this one decides who may read them (D263).
#pragma once

#include <cstdint>
#include <filesystem>

namespace gradwire {

/// The users whom a new file's mode lets read it.
enum class Readers : std::uint8_t {
  owner,     // mode 0600, whatever the umask
  group,     // mode 0640 as far as the umask allows
  everybody  // mode 0644 as far as the umask allows
};

/// open() with `flags`, and O_CREAT, O_CLOEXEC and O_NOFOLLOW. A new file has these rights from its first moment; one
/// that is there keeps its own. Returns the descriptor, which the caller closes, or -1 with errno.
[[nodiscard]] int open_to_write(const std::filesystem::path& file, int flags, Readers readers) noexcept;

}  // namespace gradwire
