// The options of the commands that advise before a job runs: plan and ratio.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands.hpp"

namespace gradwire::cli {

/// Add the command to `app`; its values go to `options`, which must outlive `app`.
CLI::App* add_plan(CLI::App& app, PlanCommandOptions& forecast);
CLI::App* add_ratio(CLI::App& app, RatioOptions& options);

}  // namespace gradwire::cli
