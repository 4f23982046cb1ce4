#include "cli/viewer_options.hpp"

namespace gradwire::cli {

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  auto* report_command = app.add_subcommand(
      "report", "Make an HTML page about a job from the files of its ranks: gradwire report /tmp/report");
  report_command
      ->add_option("directory", options.folder,
                   "directory that the job's GRADWIRE_REPORT named; or a report of replaced calls, FILE.json, whose "
                   "table is printed")
      ->type_name("DIRECTORY")
      ->required();
  report_command
      ->add_option("-o,--output", options.output, "file for the page; without it report.html in the directory")
      ->type_name("FILE");
  report_command->add_option("second", options.second, "directory of a second run: the page then compares both")
      ->type_name("SECOND");
  report_command
      ->add_option("--job", options.jobs,
                   "name of the job; without it the one that began last. Given twice: the two jobs that are compared, "
                   "of one directory or of two")
      ->type_name("NAME")
      ->allow_extra_args(false);
  report_command->add_option("--json", options.json, "file for its numbers; without it beside the page, as .json")
      ->type_name("FILE");
  return report_command;
}

CLI::App* add_top(CLI::App& app, TopOptions& options) {
  auto* top_command = app.add_subcommand(
      "top", "Show the ranks of a running job from the metrics that it writes: gradwire top /tmp/metrics");
  top_command
      ->add_option(
          "directory", options.folder,
          "directory that the job's GRADWIRE_METRICS=file:DIRECTORY or unix:DIRECTORY names, or where it serves: "
          "http:[ADDRESS:]PORT[+rank]")
      ->type_name("DIRECTORY")
      ->required();
  top_command->add_option("--job", options.job, "name of the job; without it the one that runs, or ran, last")
      ->type_name("NAME");
  top_command
      ->add_option("--token-file", options.token_file,
                   "file with the token of metrics over HTTP; without it GRADWIRE_METRICS_TOKEN names it")
      ->type_name("FILE");
  top_command->add_flag("--once", options.once, "print one block of lines, with means since the job's start");
  top_command->add_option("--interval", options.interval, "time between two looks")->capture_default_str();
  return top_command;
}

TraceCommands add_trace(CLI::App& app, TraceOptions& options) {
  TraceCommands commands;
  commands.trace = app.add_subcommand("trace", "Show what all ranks of a job did, from the events that they recorded");
  commands.trace->require_subcommand(1);
  commands.merge = commands.trace->add_subcommand(
      "merge", "Write one timeline of all ranks for ui.perfetto.dev: gradwire trace merge /tmp/trace");
  commands.summary = commands.trace->add_subcommand(
      "summary", "Say which rank, bucket and stage the steps waited for: gradwire trace summary /tmp/trace");
  for (CLI::App* const each : {commands.merge, commands.summary}) {
    each->add_option("directory", options.folder, "directory that the job's GRADWIRE_TRACE named")
        ->type_name("DIRECTORY")
        ->required();
    each->add_option("--steps", options.steps, "only these steps, such as 100-120");
  }
  commands.merge
      ->add_option("-o,--output", options.output, "file for the timeline; without it trace.pftrace in that directory")
      ->type_name("FILE");
  commands.summary->add_flag("--json", options.json, "print JSON, for programs");
  return commands;
}

}  // namespace gradwire::cli
