// The file by which processes find a job that they join: a line for each of the job's processes, with a secret. Only
// its owner may read it (mode 0600). A link, and a file that others own, can write or can read, is refused.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "transport/tcp/tcp_introduction.hpp"

namespace gradwire::transport::tcp {

/// In the log; on standard error before a session has one.
void say(LogLevel level, const std::string& text);

/// Error(invalid_argument) where the folder is missing, the file is another one, or a process in it answers, or takes
/// connections: then another job has it.
void check_join_file_is_free(const std::filesystem::path& file);

/// Of process 0 at the start: no other job gets the file until it is written and this object is gone. The file is
/// there, and empty, from here on; one that nothing was written to goes again.
class JoinFileClaim {
 public:
  /// What check_join_file_is_free() throws, or where another job has claimed it.
  explicit JoinFileClaim(std::filesystem::path file);
  JoinFileClaim(const JoinFileClaim&) = delete;
  JoinFileClaim& operator=(const JoinFileClaim&) = delete;
  ~JoinFileClaim();

 private:
  [[nodiscard]] bool is_there() const;

  std::filesystem::path file_;
  Socket held_;
};

/// In place of what was there. Error(invalid_argument) where it cannot be written.
void write_join_file(const std::filesystem::path& file, const std::vector<Acquaintance>& processes);
/// Adds one who joined; a warning where that is not possible.
void append_to_join_file(const std::filesystem::path& file, const Acquaintance& process);
/// Error(invalid_argument) where there is none, it is empty, or not to be trusted; Error(mismatch) where it is of
/// another version. Names are empty.
[[nodiscard]] std::vector<Acquaintance> read_join_file(const std::filesystem::path& file);

}  // namespace gradwire::transport::tcp
