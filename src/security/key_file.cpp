#include "security/key_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>

#include "base/secret_file.hpp"
#include "base/text.hpp"
#include "base/written_file.hpp"
#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "key file " + text::printable(file.string()) + ": " + why);
}

// Bytes on their way between a file and a key.
struct Buffer {
  std::array<std::byte, kKeyBytes + 1> bytes{};
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { wipe(bytes); }
};

// Returns 0, or the error number.
int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    bytes = bytes.subspan(written > 0 ? static_cast<std::size_t>(written) : 0);
  }
  return ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

}  // namespace

Key read_key_file(const std::filesystem::path& file) {
  SecretFile secret(file, "key file", "gradwire key new FILE makes one, and every host needs a copy");
  Buffer buffer;
  const std::size_t bytes = secret.read(buffer.bytes);
  if (bytes != kKeyBytes) {
    secret.fail("it has " + (bytes > kKeyBytes ? "more than " + std::to_string(kKeyBytes) : std::to_string(bytes)) +
                " bytes, and a key has exactly " + std::to_string(kKeyBytes) +
                ", none of them a line end; gradwire key new FILE makes one");
  }
  return Key(std::span<const std::byte>(buffer.bytes).first(kKeyBytes));
}

void write_key_file(const std::filesystem::path& file, const Key& key) {
  const Descriptor made(open_to_write(file, O_WRONLY | O_EXCL, Readers::owner));
  if (made.number() < 0) {
    const int number = errno;
    fail(file, number == EEXIST
                   ? "it exists, and a key is never overwritten; name another file, or remove this one first"
                   : "cannot be written (" + text::reason_of(number) + "); check the folder and its permissions");
  }
  if (const int number = write_all(made.number(), key.bytes()); number != 0) {
    ::unlink(file.c_str());
    fail(file, "cannot be written (" + text::reason_of(number) + "); check the disk");
  }
}

std::filesystem::path parse_key_setting(std::string_view setting, std::string_view what) {
  return secret_path(setting, what);
}

}  // namespace gradwire::security
