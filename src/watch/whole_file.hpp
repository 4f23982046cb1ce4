// Files that are complete at any time, even if this process is killed, and the handling of failed writes.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.hpp"
#include "base/written_file.hpp"

namespace gradwire::watch {

/// The end of the name of a file that is not whole yet: ".NAME.PROCESS.new".
inline constexpr std::string_view kUnfinished = ".new";

/// Throws Error(invalid_argument): "cannot WHAT FILE: ", and the meaning of `number` (errno).
[[noreturn]] void fail_at(const std::filesystem::path& file, const std::string& what, int number);

/// Writes `text` under another name in the directory and renames it, so that readers get the old or the new file.
/// Error(invalid_argument) names the file and the reason.
void write_whole(const std::filesystem::path& directory, const std::string& name, const std::string& text,
                 Readers readers = Readers::owner);

/// A directory of files of this process's ranks, which are written again and again.
class RankFiles {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// `what`: the kind of files, such as "metrics", for which the environment variable `variable` asks.
  RankFiles(std::filesystem::path directory, std::string what, std::string variable, Warn warn)
      : directory_(std::move(directory)),
        kind_(std::move(what)),
        variable_(std::move(variable)),
        warn_(std::move(warn)) {}

  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
  /// Makes the directory where it is missing, then calls `write`. An error is reported once; the next turn tries again.
  void attempt(const std::function<void()>& write);
  /// To be called in attempt(): calls write_whole(). Before the first file of a name it removes unfinished ones of
  /// killed processes; one that is younger than a minute may belong to a living process.
  void write(const std::string& name, const std::string& text, Readers readers = Readers::owner);
  [[nodiscard]] bool warned() const noexcept { return warned_; }

 private:
  std::filesystem::path directory_;
  std::string kind_;
  std::string variable_;
  Warn warn_;
  bool warned_ = false;
  std::set<std::string> cleared_;
};

}  // namespace gradwire::watch
