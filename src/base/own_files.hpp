// Files and folders that others may read and that nobody but their owner may write, whatever the umask allows.
#pragma once

#include <filesystem>
#include <system_error>

namespace gradwire {

/// Makes an empty file where there is none, of mode 0644 less what the umask takes. One that is there stays as it is,
/// and so does what is no file. Whoever writes the file then says what is wrong.
void make_own_file(const std::filesystem::path& file) noexcept;
/// Makes the folders that are not there, of mode 0755 less what the umask takes.
void make_own_folders(const std::filesystem::path& folder, std::error_code& error);

}  // namespace gradwire
