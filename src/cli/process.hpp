// Finding and running other programs.
#pragma once

#include <filesystem>
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

/// Runs the command with these variables added to the environment, waits for it, and returns its exit status (128 + the
/// number of the signal that ended it). Meanwhile SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGXCPU, SIGUSR1 and SIGUSR2
/// are handed on to it, but for those of a terminal, which reach it by themselves. After one of them, but for the last
/// two, it waits a few seconds for what the command left behind. Error(invalid_argument) if it cannot be started.
[[nodiscard]] int run_and_wait(const std::vector<std::string>& command, const Environment& added);

}  // namespace gradwire::cli
