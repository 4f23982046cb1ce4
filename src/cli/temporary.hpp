// Names below TMPDIR that belong to this process as long as it runs. A process that was killed leaves its own behind;
// the next one removes them.
#pragma once

#include <filesystem>
#include <string>

namespace gradwire::cli {

/// A folder of mode 0700, removed at the end with all that is in it. First removes those of earlier processes of this
/// user that have ended.
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
  int lock_ = -1;  // a file in it that nobody else can lock as long as this process runs
};

/// Where TMPDIR says, or /tmp.
[[nodiscard]] std::filesystem::path temporary_parent();

}  // namespace gradwire::cli
