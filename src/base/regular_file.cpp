#include "base/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire {

RegularFile::RegularFile(const std::filesystem::path& file, std::string_view what, Pipes pipes)
    : name_(std::string(what) + " " + file.string()),
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
      descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (pipes == Pipes::refused ? O_NONBLOCK : 0))) {
  const int number = errno;
  constexpr const char* kOther = "it is a pipe, a socket or a device; name a regular file";
  if (!descriptor_.is_open()) {
    fail(number == ENXIO ? kOther
                         : "cannot be read (" + text::reason_of(number) + "); check the path and its permissions");
  }
  struct stat status {};
  const bool known = ::fstat(descriptor_.get(), &status) == 0;
  if (!known || S_ISDIR(status.st_mode) || (pipes == Pipes::refused && !S_ISREG(status.st_mode))) {
    fail(known && S_ISDIR(status.st_mode) ? "it is a folder; name a file in it" : kOther);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

std::size_t RegularFile::read(void* to, std::size_t bytes) {
  const std::optional<std::size_t> got = read_all(descriptor_.get(), {static_cast<std::byte*>(to), bytes});
  if (!got) {
    fail("reading failed (" + text::reason_of(errno) + ")");
  }
  return *got;
}

void RegularFile::seek(std::uint64_t place) {
  if (::lseek(descriptor_.get(), static_cast<off_t>(place), SEEK_SET) < 0) {
    fail("reading failed (" + text::reason_of(errno) + ")");
  }
}

RegularFileStream::Buffer::int_type RegularFileStream::Buffer::underflow() {
  const std::size_t got = file_.read(bytes_.data(), bytes_.size());
  setg(bytes_.data(), bytes_.data(), bytes_.data() + got);
  return got > 0 ? traits_type::to_int_type(bytes_[0]) : traits_type::eof();
}

std::vector<std::string> lines_if_regular(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  try {
    RegularFileStream stream(file, "file");
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(line);
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the other program reports the error
  }
  return lines;
}

void RegularFile::fail(const std::string& why) const { throw Error(ErrorCode::invalid_argument, name_ + ": " + why); }

}  // namespace gradwire
