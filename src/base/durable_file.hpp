// Files that are whole or not there, also after a crash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace gradwire {

/// A state is its owner's alone (mode 0600), is brought to the disk, and has one process at a time that writes it. A
/// report may be read by others as far as the umask allows (mode 0644), unless its owner has closed the one before to
/// them; several processes may write it, and it is left to the system when it reaches the disk.
enum class FileKind : std::uint8_t { state, report };

/// Where DurableFile::commit() puts what was there before.
[[nodiscard]] std::filesystem::path previous_of(const std::filesystem::path& file);
/// Brings the names in a directory to the disk; Error(invalid_argument) where that fails. Where the filesystem has no
/// such call that is told once (D164).
void sync_directory(const std::filesystem::path& directory);
/// The name of the file that this one is, or is the previous one of.
[[nodiscard]] std::string current_of(const std::string& name);

/// A file on its way: its bytes lie under another name, which nobody can guess or has made before, until commit().
/// A link of the file's name is replaced, and what it leads to stays. What a killed process left of the same file is
/// cleared away. All members throw Error(invalid_argument) that names the file and why it cannot be written; a file
/// that is not committed leaves nothing behind.
class DurableFile {
 public:
  /// Makes `directory`, lets `write` fill the file, and brings its bytes to the disk. What `write` throws passes
  /// through.
  DurableFile(const std::filesystem::path& directory, const std::string& name,
              const std::function<void(std::ostream&)>& write, FileKind kind = FileKind::state);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  enum class Old : bool { replaced, kept };
  /// `directory`/`name` is the new file from now on. Old::kept: what was there has the name previous_of().
  void commit(Old old = Old::replaced);

 private:
  std::filesystem::path file_;
  std::filesystem::path unfinished_;  // empty: committed
  FileKind kind_;
};

/// A report that a user named: whole or not there, in a folder that is there. What has its name is replaced, and of a
/// link the link alone; a pipe or a device of that name, and what "/dev/stdout" and "/dev/fd/N" mean, is written to,
/// without a wait for a reader that is not there. Errors are those of DurableFile.
void write_report_file(const std::filesystem::path& file, const std::function<void(std::ostream&)>& write);

}  // namespace gradwire
