#include "base/own_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace gradwire {

void make_own_folders(const std::filesystem::path& folder, std::error_code& error) {
  constexpr mode_t kMode = 0755;
  error.clear();
  std::filesystem::path made;
  for (const std::filesystem::path& part : folder) {
    made /= part;
    std::error_code unknown;
    if (part.empty() || std::filesystem::is_directory(made, unknown)) {
      continue;
    }
    if (::mkdir(made.c_str(), kMode) == 0) {
      continue;
    }
    const int reason = errno == EEXIST ? ENOTDIR : errno;  // read before the next call changes it
    if (!std::filesystem::is_directory(made, unknown)) {
      error = std::error_code(reason, std::generic_category());
      return;
    }
  }
}

void unlink_link(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored))) {
    ::unlink(path.c_str());
  }
}

void remove_folder(const std::filesystem::path& folder, const std::string& first, std::error_code& error) {
  error.clear();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor >= 0) {  // works on the opened folder, since another one may have its name now
    static_cast<void>(::unlinkat(descriptor, first.c_str(), 0));
    ::close(descriptor);
  }
  std::filesystem::remove_all(folder, error);  // removes a link itself
}

}  // namespace gradwire
