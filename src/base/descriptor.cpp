#include "base/descriptor.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gradwire {

bool Descriptor::close() noexcept { return !is_open() || ::close(std::exchange(number_, -1)) == 0; }

bool write_all(int descriptor, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    bytes = bytes.subspan(written > 0 ? static_cast<std::size_t>(written) : 0);
  }
  return true;
}

std::optional<std::size_t> read_all(int descriptor, std::span<std::byte> to) noexcept {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::read(descriptor, to.data() + done, to.size() - done);
    if (got < 0 && errno != EINTR) {
      return std::nullopt;
    }
    if (got == 0) {
      break;
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return done;
}

}  // namespace gradwire
