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
  bool link = false;
  info_command->add_flag("--link", link, "Measure the links of a job instead: mpirun -np 4 gradwire info --link");

  PlanCommandOptions forecast;
  auto* plan_command = app.add_subcommand(
      "plan", "Predict step time and advise a policy: gradwire plan --layers model.toml --link 10Gbit/s");
  plan_command->add_option("--layers", forecast.layers, "model file (TOML): layers, and how long a step computes")
      ->required();
  plan_command->add_option("--link", forecast.link, "bandwidth of a node, each way")->capture_default_str();
  plan_command->add_option("--latency", forecast.latency, "of a message between nodes")->capture_default_str();
  plan_command->add_option("--ranks", forecast.ranks, "world sizes")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  plan_command->add_option("--nodes-of", forecast.nodes_of, "ranks that share a node and its link")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  plan_command->add_option("--intra-link", forecast.intra_link, "bandwidth of a rank inside its node")
      ->capture_default_str();
  plan_command->add_option("--intra-latency", forecast.intra_latency, "of a message inside a node")
      ->capture_default_str();
  plan_command
      ->add_option("--codecs", forecast.codecs,
                   "candidates beside uncompressed, best quality first; such as bf16,int8,topk(1%)+int8")
      ->delimiter(',')
      ->capture_default_str();
  plan_command->add_option("--target-exposed", forecast.target_exposed, "share of a step that may only communicate")
      ->capture_default_str();
  plan_command->add_option("--codec-rate", forecast.codec_rate,
                           "speed of every codec, such as 8GB/s of f32; without it they are measured here");
  plan_command->add_option("--svg", forecast.svg, "draw step time and exposed share there");

  RunOptions options;
  auto* run_command = app.add_subcommand(
      "run", "Run an unchanged MPI job with compressed collectives: gradwire run -- mpirun -np 4 ./job");
  run_command->add_option("--policy", options.policy, "policy file; without one, as --codec says");
  run_command->add_option("--codec", options.codec,
                          "compress all large float sums with it: int8, int4, ...; auto, the default, measures which "
                          "of them int8 makes faster and passes the others on");
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
    return link ? info_link() : info(std::cout);
  }
  if (*plan_command) {
    return plan(forecast, std::cout);
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
