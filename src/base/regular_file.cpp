#include "base/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire {

RegularFile::RegularFile(const std::filesystem::path& file, std::string_view what, Pipes pipes)
    : name_(std::string(what) + " " + file.string()) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): open() has variable arguments
  descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (pipes == Pipes::refused ? O_NONBLOCK : 0));
  const int number = errno;
  constexpr const char* kOther = "it is a pipe, a socket or a device; name a regular file";
  if (descriptor_ < 0) {
    fail(number == ENXIO ? kOther
                         : "cannot be read (" + text::reason_of(number) + "); check the path and its permissions");
  }
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || S_ISDIR(status.st_mode) || (pipes == Pipes::refused && !S_ISREG(status.st_mode))) {
    ::close(descriptor_);
    fail(known && S_ISDIR(status.st_mode) ? "it is a folder; name a file in it" : kOther);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

RegularFile::~RegularFile() { ::close(descriptor_); }

std::size_t RegularFile::read(void* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(descriptor_, static_cast<char*>(to) + done, bytes - done);
    if (got < 0 && errno != EINTR) {
      fail("reading failed (" + text::reason_of(errno) + ")");
    }
    if (got == 0) {
      break;
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return done;
}

void RegularFile::seek(std::uint64_t place) {
  if (::lseek(descriptor_, static_cast<off_t>(place), SEEK_SET) < 0) {
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
