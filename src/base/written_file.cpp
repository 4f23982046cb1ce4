#include "base/written_file.hpp"

#include <fcntl.h>
#include <sys/types.h>

namespace gradwire {

int open_to_write(const std::filesystem::path& file, int flags, Readers readers) noexcept {
  constexpr mode_t kModes[] = {0600, 0640, 0644};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
  return ::open(file.c_str(), flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kModes[static_cast<int>(readers)]);
}

}  // namespace gradwire
