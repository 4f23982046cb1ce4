// Files that are whole at any time, whenever this process is killed, and what becomes of those that cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace gradwire::watch {

/// Closed at the end of a scope, or before.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  ~Descriptor() { static_cast<void>(close()); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] bool close() noexcept;

 private:
  int descriptor_;
};

/// Whether all of it was written; else errno says why.
[[nodiscard]] bool write_all(int descriptor, std::string_view text) noexcept;

/// Error(invalid_argument): "cannot WHAT FILE: ", and what `number` (errno) means.
[[noreturn]] void fail_at(const std::filesystem::path& file, const std::string& what, int number);

/// Who may read a file: its owner alone (mode 0600), or others as far as the umask allows (mode 0644).
enum class Readers : std::uint8_t { owner, everybody };

/// Writes `text` under another name of the directory and renames it: who reads the file gets the old or the new one.
/// Error(invalid_argument) that names the file and why.
void write_whole(const std::filesystem::path& directory, const std::string& name, const std::string& text,
                 Readers readers = Readers::everybody);

/// A directory of files of this process's ranks, written again and again.
class RankFiles {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// `what`: "metrics", asked for by `variable`.
  RankFiles(std::filesystem::path directory, std::string what, std::string variable, Warn warn)
      : directory_(std::move(directory)),
        what_(std::move(what)),
        variable_(std::move(variable)),
        warn_(std::move(warn)) {}

  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
  /// Makes the directory where it is not there, then calls `write`. What is wrong is told once; the next turn tries
  /// again.
  void attempt(const std::function<void()>& write);
  /// In attempt(): write_whole(). Before the first of a name it removes what a killed process left in the middle of it;
  /// what is younger than a minute may be another's that is alive.
  void write(const std::string& name, const std::string& text, Readers readers = Readers::everybody);
  [[nodiscard]] bool warned() const noexcept { return warned_; }

 private:
  std::filesystem::path directory_;
  std::string what_;
  std::string variable_;
  Warn warn_;
  bool warned_ = false;
  std::set<std::string> cleared_;
};

}  // namespace gradwire::watch
