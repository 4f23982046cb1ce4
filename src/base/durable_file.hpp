// Files that are either complete or absent, also after a crash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

#include "base/written_file.hpp"

namespace gradwire {

/// A state is brought to the disk, and one process at a time writes it. A report may be written by several processes,
/// and the system decides when it reaches the disk.
enum class FileKind : std::uint8_t { state, report };

/// The name that DurableFile::commit() gives to the file that was there before.
[[nodiscard]] std::filesystem::path previous_of(const std::filesystem::path& file);
/// Brings the names in a directory to the disk; Error(invalid_argument) where that fails. Where the filesystem has no
/// such call, that is logged once (D164).
void sync_directory(const std::filesystem::path& directory);
/// The name without the suffix of previous_of(), if it has one.
[[nodiscard]] std::string current_of(const std::string& name);

/// A file that is being written: until commit() its bytes lie under another name, which nobody can guess or has made
/// before. A link of the file's name is replaced, and its target stays. Unfinished files of the same name that a killed
/// process left are removed. All members throw Error(invalid_argument), which names the file and why it cannot be
/// written; a file that is not committed leaves nothing behind.
class DurableFile {
 public:
  /// Makes `directory`, lets `write` fill the file, and brings its bytes to the disk. Exceptions of `write` pass
  /// through. `readers` may read the file, unless its owner closed the previous one to them.
  DurableFile(const std::filesystem::path& directory, const std::string& name,
              const std::function<void(std::ostream&)>& write, FileKind kind = FileKind::state,
              Readers readers = Readers::owner);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  enum class Old : bool { replaced, kept };
  /// Makes the new file `directory`/`name`. Old::kept: the previous file gets the name previous_of().
  void commit(Old old = Old::replaced);

 private:
  std::filesystem::path file_;
  std::filesystem::path unfinished_;  // empty: committed
  FileKind kind_;
};

/// Writes a report that a user named, completely or not at all, in a folder that must exist. An existing file is
/// replaced, and a link itself, not its target. `readers` are as in DurableFile. A pipe or a device of that name, and
/// the target of "/dev/stdout" or
/// "/dev/fd/N", is written to, without a wait for a missing reader. Errors are those of DurableFile.
void write_report_file(const std::filesystem::path& file, const std::function<void(std::ostream&)>& write,
                       Readers readers = Readers::owner);

}  // namespace gradwire
