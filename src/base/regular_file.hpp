// Files that are read without a wait: a pipe under a name that is expected would hold its reader for ever.
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

namespace gradwire {

/// Whether what is no regular file may be read: a user may give a policy by a pipe.
enum class Pipes { refused, read };

/// Open for reading. Errors (invalid_argument) begin with `what`, such as "policy file", and the name: a folder, a
/// pipe, a socket or a device, not there, not to be read.
class RegularFile {
 public:
  RegularFile(const std::filesystem::path& file, std::string_view what, Pipes pipes = Pipes::refused);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  /// How many bytes came; fewer than asked for at the end of the file.
  [[nodiscard]] std::size_t read(void* to, std::size_t bytes);
  void seek(std::uint64_t place);
  /// When it was opened. 0 of files of /proc, which have bytes all the same.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  [[noreturn]] void fail(const std::string& why) const;

  std::string name_;  // with what it is
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The same as a stream, for what is read piece by piece. A disk that fails makes it bad().
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

/// Of a file that another program reads as well: none where it cannot be read, or is a pipe, whose bytes would be gone.
[[nodiscard]] std::vector<std::string> lines_if_regular(const std::filesystem::path& file);

}  // namespace gradwire
