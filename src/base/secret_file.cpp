#include "base/secret_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

std::string octal(mode_t mode) {
  std::string digits = "0";
  for (int shift = 6; shift >= 0; shift -= 3) {
    digits += static_cast<char>('0' + ((mode >> shift) & 7U));
  }
  return digits;
}

// The reason why a file with that status cannot be trusted; empty: it can.
std::string why_not_secret(const struct stat& status, const std::string& name) {
  if (!S_ISREG(status.st_mode)) {
    return "it is no regular file; name one";
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return "it belongs to user " + std::to_string(status.st_uid) +
           ", who could read and change it; this process runs " + "as user " + std::to_string(::geteuid()) +
           ". Copy it to a file of your own: install -m 600 " + name + " FILE";
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return "its mode is " + octal(status.st_mode) + ", which lets other users at it; run chmod 600 " + name +
           ", and replace what is in it if others may have read it";
  }
  return "";
}

}  // namespace

SecretFile::SecretFile(const std::filesystem::path& file, std::string_view what, std::string_view how)
    : file_(file),
      what_(what),
      // O_NONBLOCK: a pipe of that name must not hold the process up.
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
      descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {
  if (!descriptor_.is_open()) {
    const int number = errno;
    fail("cannot be read (" + text::reason_of(number) + "); " +
         (number == ENOENT ? std::string(how) : "check the path and its permissions"));
  }
  struct stat status {};
  const std::string why = ::fstat(descriptor_.get(), &status) == 0
                              ? why_not_secret(status, text::shell_word(file.string()))
                              : "cannot be examined (" + text::reason_of(errno) + ")";
  if (!why.empty()) {
    fail(why);
  }
}

std::size_t SecretFile::read(std::span<std::byte> to) {
  const std::optional<std::size_t> got = read_all(descriptor_.get(), to);
  if (!got) {
    fail("reading failed (" + text::reason_of(errno) + ")");
  }
  return *got;
}

void SecretFile::fail(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, what_ + " " + text::printable(file_.string()) + ": " + why);
}

std::string read_token_file(const std::filesystem::path& file) {
  constexpr std::size_t kLeast = 16;
  constexpr std::size_t kMost = 4096;
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
  SecretFile secret(file, "token file");
  std::array<char, kMost + 2> bytes{};
  std::string token(bytes.data(), secret.read(std::as_writable_bytes(std::span(bytes))));
  if (token.ends_with('\n')) {
    token.pop_back();
  }
  if (token.size() < kLeast || token.size() > kMost || token.find_first_not_of(kAllowed) != std::string::npos) {
    secret.fail("it is not one line of " + std::to_string(kLeast) + " to " + std::to_string(kMost) +
                " letters, digits and -._~+/=; openssl rand -hex 32 makes a good one");
  }
  return token;
}

std::filesystem::path secret_path(std::string_view value, std::string_view name) {
  constexpr std::string_view kFile = "file:";
  if (!value.starts_with(kFile) || value.size() == kFile.size()) {
    throw Error(
        ErrorCode::invalid_argument,
        std::string(name) + " is not \"file:PATH\"; write file: and the path of a file, never the secret itself");
  }
  return value.substr(kFile.size());
}

}  // namespace gradwire
