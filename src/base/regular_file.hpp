// Opens files without blocking: a pipe in place of an expected file would block its reader for ever.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"

namespace gradwire {

/// Whether pipes and devices may be read, too: a user may give a policy by a pipe.
enum class Pipes { refused, read };

/// A file opened for reading. Error(invalid_argument), which begins with `what`, such as "policy file", and the name,
/// where it is a folder, a pipe, a socket or a device, is missing or cannot be read.
class RegularFile {
 public:
  RegularFile(const std::filesystem::path& file, std::string_view what, Pipes pipes = Pipes::refused);

  /// Reads; returns the number of bytes, which is less than `bytes` at the end of the file.
  [[nodiscard]] std::size_t read(void* to, std::size_t bytes);
  void seek(std::uint64_t place);
  /// Its size when it was opened. It is 0 for files of /proc, though they have bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  [[noreturn]] void fail(const std::string& why) const;

  std::string name_;  // with `what` in front
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
};

/// The same as a stream, for reading piece by piece. A failing disk makes it bad().
class RegularFileStream : public std::istream {
 public:
  RegularFileStream(const std::filesystem::path& file, std::string_view what)
      : std::istream(nullptr), buffer_(file, what) {
    rdbuf(&buffer_);
  }

 private:
  class Buffer : public std::streambuf {
   public:
    Buffer(const std::filesystem::path& file, std::string_view what) : file_(file, what) {}

   protected:
    int_type underflow() override;

   private:
    RegularFile file_;
    std::array<char, 1 << 16> bytes_{};
  };

  Buffer buffer_;
};

/// The lines of a file that another program reads as well; none where it cannot be read, or is a pipe, whose bytes
/// would then be missing there.
[[nodiscard]] std::vector<std::string> lines_if_regular(const std::filesystem::path& file);

}  // namespace gradwire
