#include "security/key_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>

#include "base/text.hpp"
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

std::string octal(mode_t mode) {
  std::string digits = "0";
  for (int shift = 6; shift >= 0; shift -= 3) {
    digits += static_cast<char>('0' + ((mode >> shift) & 7U));
  }
  return digits;
}

// Checks an open file, so that nobody can put another one in its place.
void check(const std::filesystem::path& file, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    fail(file, "cannot be examined (" + text::reason_of(errno) + ")");
  }
  const std::string name = text::shell_word(file.string());
  if (!S_ISREG(status.st_mode)) {
    fail(file, "it is no regular file; gradwire key new FILE makes one");
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    fail(file, "it belongs to user " + std::to_string(status.st_uid) + ", who could read and change it; this process " +
                   "runs as user " + std::to_string(::geteuid()) + ". Copy it to a file of your own: install -m 600 " +
                   name + " FILE");
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fail(file, "its mode is " + octal(status.st_mode) + ", which lets other users at it; run chmod 600 " + name +
                   ", and make a new key if others may have read this one");
  }
}

std::size_t read_all(const std::filesystem::path& file, int descriptor, std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::read(descriptor, to.data() + done, to.size() - done);
    if (got < 0 && errno != EINTR) {
      fail(file, "reading failed (" + text::reason_of(errno) + ")");
    }
    if (got == 0) {
      break;
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return done;
}

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
  // O_NONBLOCK: a pipe of that name must not hold the process up.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (opened.number() < 0) {
    const int number = errno;
    fail(file, "cannot be read (" + text::reason_of(number) + "); " +
                   (number == ENOENT ? "gradwire key new FILE makes one, and every host needs a copy"
                                     : "check the path and its permissions"));
  }
  check(file, opened.number());
  Buffer buffer;
  const std::size_t bytes = read_all(file, opened.number(), buffer.bytes);
  if (bytes != kKeyBytes) {
    fail(file, "it has " + (bytes > kKeyBytes ? "more than " + std::to_string(kKeyBytes) : std::to_string(bytes)) +
                   " bytes, and a key has exactly " + std::to_string(kKeyBytes) +
                   ", none of them a line end; gradwire key new FILE makes one");
  }
  return Key(std::span<const std::byte>(buffer.bytes).first(kKeyBytes));
}

void write_key_file(const std::filesystem::path& file, const Key& key) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
  const Descriptor made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (made.number() < 0) {
    const int number = errno;
    fail(file, number == EEXIST
                   ? "it exists, and a key is never overwritten; name another file, or remove this one first"
                   : "cannot be written (" + text::reason_of(number) + "); check the folder and its permissions");
  }
  int number = ::fchmod(made.number(), S_IRUSR | S_IWUSR) == 0 ? 0 : errno;  // whatever the umask or an ACL made of it
  if (number == 0) {
    number = write_all(made.number(), key.bytes());
  }
  if (number != 0) {
    ::unlink(file.c_str());
    fail(file, "cannot be written (" + text::reason_of(number) + "); check the disk");
  }
}

std::filesystem::path parse_key_setting(std::string_view setting, std::string_view what) {
  constexpr std::string_view kFile = "file:";
  if (!setting.starts_with(kFile) || setting.size() == kFile.size()) {
    // The value is not repeated: it may be a key that somebody took for one.
    throw Error(ErrorCode::invalid_argument,
                std::string(what) +
                    " is not \"file:PATH\"; write the path of a key file, such as file:/home/me/job.key, "
                    "never the key itself");
  }
  return setting.substr(kFile.size());
}

}  // namespace gradwire::security
