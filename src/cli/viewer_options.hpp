// The options of the commands that show what a job did or does: report, top and trace.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands.hpp"

namespace gradwire::cli {

/// Add the command to `app`; its values go to `options`, which must outlive `app`.
CLI::App* add_report(CLI::App& app, ReportOptions& options);
CLI::App* add_top(CLI::App& app, TopOptions& options);

/// gradwire trace, and its two commands.
struct TraceCommands {
  CLI::App* trace = nullptr;
  CLI::App* merge = nullptr;
  CLI::App* summary = nullptr;
};

TraceCommands add_trace(CLI::App& app, TraceOptions& options);

}  // namespace gradwire::cli
