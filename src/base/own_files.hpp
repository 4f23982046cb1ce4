// Makes folders that others may read and only their owner may write, whatever the umask allows; and removes files and
// folders, but never the target of a link.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace gradwire {

/// Makes the missing folders, with mode 0755 restricted by the umask. `error` says why one cannot be made.
void make_own_folders(const std::filesystem::path& folder, std::error_code& error);
/// Removes a symbolic link of that name, and nothing else.
void unlink_link(const std::filesystem::path& path) noexcept;
/// Removes a folder with its content, the file `first` before the others. Of a link in its place, or in it, only the
/// link itself is removed.
void remove_folder(const std::filesystem::path& folder, const std::string& first, std::error_code& error);

}  // namespace gradwire
