#include "security/key_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>

#include "base/descriptor.hpp"
#include "base/secret_file.hpp"
#include "base/text.hpp"
#include "base/written_file.hpp"
#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

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

// Writes the bytes and brings them to the disk. Returns 0, or the error number.
int write_to_disk(int descriptor, std::span<const std::byte> bytes) {
  if (!write_all(descriptor, bytes)) {
    return errno;
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
  if (made.get() < 0) {
    const int number = errno;
    fail(file, number == EEXIST
                   ? "it exists, and a key is never overwritten; name another file, or remove this one first"
                   : "cannot be written (" + text::reason_of(number) + "); check the folder and its permissions");
  }
  if (const int number = write_to_disk(made.get(), key.bytes()); number != 0) {
    ::unlink(file.c_str());
    fail(file, "cannot be written (" + text::reason_of(number) + "); check the disk");
  }
}

}  // namespace gradwire::security
