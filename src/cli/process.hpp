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

/// As a shell finds it: a name with a slash as it is, another one in PATH. Only files that may be executed.
[[nodiscard]] std::optional<std::filesystem::path> find_program(const std::string& name);

/// What a program prints to standard output; empty where it cannot be run. Its standard error is dropped.
[[nodiscard]] std::string output_of(const std::vector<std::string>& command);

using Environment = std::vector<std::pair<std::string, std::string>>;  // names and values

/// A variable of this process; empty where it is not set.
[[nodiscard]] std::string variable(const char* name);

inline constexpr int kSignalled = 128;  // and the number of a signal: as shells report a process that it ended

/// How a command ended.
struct Ended {
  int status = 0;  // its exit status, or kSignalled + the number of the signal that ended it
  int signal = 0;  // that asked this process for an end meanwhile; 0: none did
};

/// Runs commands, one after another. As long as it lives, it takes the signals SIGTERM, SIGHUP, SIGINT, SIGQUIT,
/// SIGXCPU, SIGUSR1 and SIGUSR2 of this process. One of a kind at a time.
class CommandRunner {
 public:
  CommandRunner();
  ~CommandRunner();
  CommandRunner(const CommandRunner&) = delete;
  CommandRunner& operator=(const CommandRunner&) = delete;

  /// Runs the command with these variables added to the environment, and waits for it. Signals are handed on to it, but
  /// for those of a terminal, which reach it by themselves. After one of them, but for the last two, it waits a few
  /// seconds for what the command left behind. Error(invalid_argument) if it cannot be started.
  [[nodiscard]] Ended run(const std::vector<std::string>& command, const Environment& added);
  /// Ends what the last command left behind: gives it 2 s, then 10 s after SIGTERM.
  void end_orphans();
  /// Waits that long, or until a signal asks for an end, or one did since the last command ended; returns that, or 0.
  [[nodiscard]] int pause(std::chrono::nanoseconds time);

 private:
  class Signals;
  std::unique_ptr<Signals> signals_;
};

/// Which of these commands end with status 0, all run at once; their input and output is nothing. One that is not done
/// in time is killed.
[[nodiscard]] std::vector<bool> succeed(const std::vector<std::vector<std::string>>& commands,
                                        std::chrono::nanoseconds within);

}  // namespace gradwire::cli
