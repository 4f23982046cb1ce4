// gradwire: checks policies, shows the build, runs unchanged jobs with compressed collectives.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <string>

#include "cli/commands.hpp"
#include "gradwire/version.hpp"

namespace gradwire::cli {
namespace {

int dispatch(int argc, char** argv) {
  CLI::App app("Compressed collectives for training jobs", "gradwire");
  app.set_version_flag("--version", std::string(kVersion));
  app.require_subcommand(1);

  std::string policy;
  int ranks = 4;
  auto* check_command = app.add_subcommand("check", "Explain a policy file, or say what is wrong in it");
  check_command->add_option("policy", policy, "TOML file")->required();
  check_command->add_option("--ranks", ranks, "world size for which second hops are told")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();

  auto* info_command = app.add_subcommand("info", "Show version, libraries, CPU features and environment variables");

  RunOptions options;
  auto* run_command = app.add_subcommand(
      "run", "Run an unchanged MPI job with compressed collectives: gradwire run -- mpirun -np 4 ./job");
  run_command->add_option("--policy", options.policy,
                          "policy file; without one, large sums of floats are sent as int8");
  run_command->add_option("--report", options.report, "write what became of the calls there too, as JSON");
  run_command->add_flag("--dry-run", options.dry_run, "compress nothing; only count what would be");
  run_command->add_option("command", options.command, "mpirun or mpiexec with its arguments, behind --")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageStatus;
  }
  if (*check_command) {
    return check(policy, ranks, std::cout);
  }
  if (*info_command) {
    return info(std::cout);
  }
  return run(options, std::cerr);  // standard output belongs to the job
}

}  // namespace
}  // namespace gradwire::cli

int main(int argc, char** argv) {
  try {
    return gradwire::cli::dispatch(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "gradwire: " << error.what() << '\n';
    return gradwire::cli::kUsageStatus;
  }
}
