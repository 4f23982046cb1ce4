// A file without a name, which ends with the process, for data that does not fit into memory. Its owner alone may read
// it (mode 0600).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/forked.hpp"

namespace gradwire::memory {

class ScratchFile {
 public:
  /// Makes a file in `folder`, which bypasses the page cache (O_DIRECT) if the file system allows that; otherwise a
  /// line in the log says so. `holds` names the content in messages: "residuals". Error(invalid_argument) names the
  /// folder if nothing can be written there.
  ScratchFile(std::filesystem::path folder, std::string holds);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  /// In a forked child, which has closed the file, it does nothing.
  ~ScratchFile();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] bool bypasses_cache() const noexcept { return bypasses_cache_; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const std::string& holds() const noexcept { return holds_; }

  /// Throws Error(unsupported) in a forked child.
  void check_home() const;
  /// Throws Error(invalid_argument) if this process may not write files of so many bytes. A write past that limit would
  /// raise SIGXFSZ, which ends the process.
  void check_size(std::uint64_t bytes) const;
  /// Takes room for `bytes` on the disk, where the file system can do so. Error(invalid_argument) if it is full.
  void reserve(std::uint64_t bytes) const;
  /// Returns "DIR: `what` (No space left on device); what to do about it". `reason` is an errno, or 0 for none.
  [[nodiscard]] std::string message(const std::string& what, int reason) const;

 private:
  Home home_;
  std::filesystem::path folder_;
  std::string holds_;
  int descriptor_ = -1;
  bool bypasses_cache_ = false;
};

}  // namespace gradwire::memory
