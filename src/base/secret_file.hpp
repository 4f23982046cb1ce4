// Files that only their owner may know, such as one with the token for metrics.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"

namespace gradwire {

/// A file opened for reading: a regular one, or a link to one, of this user or of root, without rights for group and
/// others. It is checked after it was opened, so renaming files meanwhile changes nothing. Error(invalid_argument),
/// which begins with `what`, such as "token file", and the path, says what is wrong and how to mend it.
class SecretFile {
 public:
  /// `how` says where such a file comes from, in the error for one that is missing.
  SecretFile(const std::filesystem::path& file, std::string_view what,
             std::string_view how = "check the path and its permissions");

  /// Reads; returns the number of bytes, which is less than there is room for at the end of the file.
  [[nodiscard]] std::size_t read(std::span<std::byte> to);
  /// Throws the Error for this file.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::filesystem::path file_;
  std::string what_;
  Descriptor descriptor_;
};

/// The token in such a file: its only line, 16 to 4096 characters that RFC 6750 allows in a bearer token.
/// Error(invalid_argument) as above, which never repeats the file's content.
[[nodiscard]] std::string read_token_file(const std::filesystem::path& file);

/// The PATH of "file:PATH", as a variable or a policy gives it; `name` is what the Error(invalid_argument) for anything
/// else calls it. The value is not repeated there, since it may be the secret itself.
[[nodiscard]] std::filesystem::path secret_path(std::string_view value, std::string_view name);

}  // namespace gradwire
