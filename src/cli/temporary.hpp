// Names below TMPDIR that belong to this process as long as it runs. A killed process leaves its own behind, and the
// next process removes them.
#pragma once

#include <filesystem>
#include <string>

namespace gradwire::cli {

/// A folder of mode 0700, which is removed at the end with its content. The constructor first removes folders of
/// earlier processes of this user that have ended.
class TemporaryFolder {
 public:
  /// Error(invalid_argument) where none can be made.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  // a file in it that no other process can lock as long as this one runs
};

/// The folder that TMPDIR names, or /tmp.
[[nodiscard]] std::filesystem::path temporary_parent();

}  // namespace gradwire::cli
