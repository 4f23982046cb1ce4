// Files that are whole or not there, also after a crash.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace gradwire {

/// Where DurableFile::commit() puts what was there before.
[[nodiscard]] std::filesystem::path previous_of(const std::filesystem::path& file);
/// Brings the names in a directory to the disk; Error(invalid_argument) where that fails.
void sync_directory(const std::filesystem::path& directory);
/// The name of the file that this one is, or is the previous one of.
[[nodiscard]] std::string current_of(const std::string& name);

/// A file on its way: its bytes lie under another name, which nobody can guess or has made before, until commit().
/// Only its owner may read it (mode 0600). What a killed process left of the same file is cleared away. All members
/// throw Error(invalid_argument) that names the file and why it cannot be written; a file that is not committed leaves
/// nothing behind.
class DurableFile {
 public:
  /// Makes `directory`, lets `write` fill the file, and brings its bytes to the disk. What `write` throws passes
  /// through.
  DurableFile(const std::filesystem::path& directory, const std::string& name,
              const std::function<void(std::ostream&)>& write);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  enum class Old : bool { replaced, kept };
  /// `directory`/`name` is the new file from now on. Old::kept: what was there has the name previous_of().
  void commit(Old old = Old::replaced);

 private:
  std::filesystem::path file_;
  std::filesystem::path unfinished_;  // empty: committed
};

}  // namespace gradwire
