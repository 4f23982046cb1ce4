#include "base/own_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace gradwire {

void make_own_file(const std::filesystem::path& file) noexcept {
  constexpr mode_t kMode = 0644;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() is as it is
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
}

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
    if (::mkdir(made.c_str(), kMode) != 0 && !std::filesystem::is_directory(made, unknown)) {
      error = std::error_code(errno, std::generic_category());
      return;
    }
  }
}

}  // namespace gradwire
