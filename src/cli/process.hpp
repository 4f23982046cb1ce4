// Finding and running other programs.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::cli {

/// Finds a program as a shell does: a name with a slash as it is, another one in PATH. Only executable files count.
[[nodiscard]] std::optional<std::filesystem::path> find_program(const std::string& name);

/// The standard output of a program; empty where it cannot be run. Its standard error is dropped.
[[nodiscard]] std::string output_of(const std::vector<std::string>& command);

/// What a program printed, and how it ended.
struct ProgramOutput {
  int status = 0;  // as in Ended; kCannotRunStatus where it could not be started
  std::string text;
};
enum class StandardError : bool { dropped, taken };
/// Runs a program without input, and waits for it. The text is its standard output, with what it prints on standard
/// error where that is taken; where it cannot be started, the reason stands for the latter.
[[nodiscard]] ProgramOutput run_and_read(const std::vector<std::string>& command, StandardError error);

using Environment = std::vector<std::pair<std::string, std::string>>;  // names and values

/// A variable of this process; empty where it is not set.
[[nodiscard]] std::string variable(const char* name);

inline constexpr int kSignalled = 128;  // plus the number of a signal: a shell's status of a process that it ended

/// How a command ended.
struct Ended {
  int status = 0;  // its exit status, or kSignalled + the number of the signal that ended it
  int signal = 0;  // the signal that asked this process for an end meanwhile; 0: none
};

/// Runs commands, one after another. As long as it lives, it takes the signals SIGTERM, SIGHUP, SIGINT, SIGQUIT,
/// SIGXCPU, SIGUSR1 and SIGUSR2 of this process. Only one object may exist at a time.
class CommandRunner {
 public:
  CommandRunner();
  ~CommandRunner();
  CommandRunner(const CommandRunner&) = delete;
  CommandRunner& operator=(const CommandRunner&) = delete;

  /// Runs the command with these variables added to the environment, and waits for it. Passes signals on to it, except
  /// those of a terminal, which reach it by themselves. After one of the signals, except SIGUSR1 and SIGUSR2, it waits
  /// a few seconds for processes that the command left behind. Error(invalid_argument) if the command cannot be
  /// started.
  [[nodiscard]] Ended run(const std::vector<std::string>& command, const Environment& added);
  /// Ends processes that the last command left behind: waits 2 s for them, then 10 s after SIGTERM.
  void end_orphans();
  /// Waits for `time`, or until a signal asks for an end; a signal since the end of the last command counts, too.
  /// Returns the signal, or 0.
  [[nodiscard]] int pause(std::chrono::nanoseconds time);

 private:
  class Signals;
  std::unique_ptr<Signals> signals_;
};

/// Runs all commands at once, without input and output, and returns which ones end with status 0. A command that does
/// not end in time is killed.
[[nodiscard]] std::vector<bool> succeed(const std::vector<std::vector<std::string>>& commands,
                                        std::chrono::nanoseconds within);

}  // namespace gradwire::cli
