// The file by which processes find a job that they join: a line for each of the job's processes, with a secret. Only
// its owner may read it (mode 0600). A link, and a file that others own, can write or can read, is refused.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "transport/tcp/tcp_introduction.hpp"

namespace gradwire::transport::tcp {

/// Writes to the log; to standard error before there is a log.
void say(LogLevel level, const std::string& text);

/// Throws Error(invalid_argument) where the folder is missing, the file is no join file, or a process named in it
/// answers or accepts connections: then another job uses it.
/// `keys` are those of the caller's job; null: none.
void check_join_file_is_free(const std::filesystem::path& file, const ConnectionKeys* keys = nullptr);

/// Claims the file for process 0 at the start: no other job gets it until it is written and this object is gone. The
/// file exists, empty, from here on; if nothing is written to it, it is removed again.
class JoinFileClaim {
 public:
  /// Throws the errors of check_join_file_is_free(), also where another job has claimed the file.
  explicit JoinFileClaim(std::filesystem::path file, const ConnectionKeys* keys = nullptr);
  JoinFileClaim(const JoinFileClaim&) = delete;
  JoinFileClaim& operator=(const JoinFileClaim&) = delete;
  ~JoinFileClaim();

 private:
  [[nodiscard]] bool file_exists() const;

  std::filesystem::path file_;
  Socket held_;
};

/// Replaces the file's content. Error(invalid_argument) where it cannot be written.
void write_join_file(const std::filesystem::path& file, const std::vector<Acquaintance>& processes);
/// Adds a process that joined; logs a warning where that is not possible.
void append_to_join_file(const std::filesystem::path& file, const Acquaintance& process);
/// Removes the file if process `own` stands in it and no other one that does answers or accepts connections. To be
/// called once `own` no longer listens, so that the last of several processes that end at once finds nobody. What
/// prevents it leaves the file there, and takes 3 s at most.
void remove_join_file_if_last(const std::filesystem::path& file, const Acquaintance& own,
                              const ConnectionKeys* keys = nullptr) noexcept;

/// The processes in the file, with empty names. Error(invalid_argument) where the file is missing, empty or not to be
/// trusted; Error(mismatch) where it is of another version.
[[nodiscard]] std::vector<Acquaintance> read_join_file(const std::filesystem::path& file);

}  // namespace gradwire::transport::tcp
