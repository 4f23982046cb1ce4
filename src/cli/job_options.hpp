// The options of the commands that start a job, run and doctor, and the job's command behind them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace gradwire::cli {

/// Add the command to `app`; its values go to `options`, which must outlive `app`. take_command() reads the job's.
CLI::App* add_run(CLI::App& app, RunOptions& options);
CLI::App* add_doctor(CLI::App& app, DoctorOptions& options);

/// The command of gradwire run or gradwire doctor, which `app` is; Error(invalid_argument) that shows where "--"
/// belongs. `before` and `behind` are the arguments on its two sides; the latter begin with it, or are none.
/// `optional`: there may be no command.
[[nodiscard]] std::vector<std::string> take_command(const CLI::App& app, const std::vector<std::string>& before,
                                                    const std::vector<std::string>& behind, bool optional);

}  // namespace gradwire::cli
