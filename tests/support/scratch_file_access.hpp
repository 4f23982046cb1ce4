// Reaches the scratch files of this process, which have no name, as another program could.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace gradwire::test {

/// Opens each scratch file of this process that lies in `folder` once more. The caller closes the descriptors.
inline std::vector<int> open_scratch_files(const std::filesystem::path& folder) {
  std::vector<int> opened;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with(folder.string() + "/")) {
      opened.push_back(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    }
  }
  return opened;
}

}  // namespace gradwire::test
