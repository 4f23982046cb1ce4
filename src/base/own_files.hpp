// Folders that others may read and that nobody but their owner may write, whatever the umask allows; and what is
// removed of files and folders: never what a link leads to.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace gradwire {

/// Makes the folders that are not there, of mode 0755 less what the umask takes. `error` says why one cannot be made.
void make_own_folders(const std::filesystem::path& folder, std::error_code& error);
/// Removes a symbolic link of that name; anything else stays.
void unlink_link(const std::filesystem::path& path) noexcept;
/// Removes a folder and all that is in it, the file `first` before the others. A link in its place, or in it, goes
/// itself, and what it leads to stays.
void remove_folder(const std::filesystem::path& folder, const std::string& first, std::error_code& error);

}  // namespace gradwire
