#include "cli/advice_options.hpp"

#include <CLI/CLI.hpp>

namespace gradwire::cli {

namespace {

/// GPUs have their links and their codecs' speed in a file of their own.
void add_gpus(CLI::App& plan_command, PlanCommandOptions& forecast) {
  CLI::Option* gpu =
      plan_command
          .add_option("--gpu", forecast.gpu,
                      "GPUs, links and nodes (TOML): compares ways to sum buckets on them with NCCL; with --layers or "
                      "--from, for the buckets of that model")
          ->type_name("FILE");
  for (const char* link : {"--link", "--latency", "--ranks", "--nodes-of", "--intra-link", "--intra-latency",
                           "--codecs", "--target-exposed", "--in-flight", "--codec-rate"}) {
    gpu->excludes(plan_command.get_option(link));
  }
  plan_command.add_option("--buckets", forecast.buckets, "with --gpu and without a model: sizes of buckets")
      ->delimiter(',')
      ->needs(gpu)
      ->excludes(plan_command.get_option("--layers"))
      ->excludes(plan_command.get_option("--from"))
      ->capture_default_str();
}

}  // namespace

CLI::App* add_plan(CLI::App& app, PlanCommandOptions& forecast) {
  auto* plan_command = app.add_subcommand(
      "plan", "Predict step time and advise a policy: gradwire plan --layers model.toml --link 10Gbit/s");
  plan_command->add_option("--layers", forecast.layers, "model file (TOML): layers, and how long a step computes")
      ->type_name("FILE");
  plan_command
      ->add_option(
          "--from", forecast.from,
          "instead of --layers: gradients that gradwire run --record-gradients or a session recorded, or a report of "
          "gradwire run (--report)")
      ->type_name("FILE");
  plan_command->add_option("--compute", forecast.compute,
                           "with --from: how long a step computes on one rank, such as 180ms; default: the time "
                           "that an observed job spent outside its calls");
  plan_command->add_option("--link", forecast.link, "bandwidth of a node's link in each direction")
      ->capture_default_str();
  plan_command->add_option("--latency", forecast.latency, "latency of a message between nodes")->capture_default_str();
  plan_command->add_option("--ranks", forecast.ranks, "world sizes, with commas between them")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  plan_command->add_option("--nodes-of", forecast.nodes_of, "ranks that share a node and its link")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  plan_command->add_option("--intra-link", forecast.intra_link, "bandwidth of a rank inside its node")
      ->capture_default_str();
  plan_command->add_option("--intra-latency", forecast.intra_latency, "latency of a message inside a node")
      ->capture_default_str();
  plan_command
      ->add_option("--codecs", forecast.codecs,
                   "lossy candidates beside uncompressed, best quality first, such as bf16,int8,topk(1%)+int8")
      ->delimiter(',')
      ->capture_default_str();
  plan_command
      ->add_option("--target-exposed", forecast.target_exposed, "share of a step that exposed communication may take")
      ->capture_default_str();
  plan_command->add_option("--in-flight", forecast.in_flight, "memory for the frames that a rank has under way")
      ->capture_default_str();
  plan_command->add_option(
      "--codec-rate", forecast.codec_rate,
      "speed of every codec, such as 8GB/s of f32; without it codecs are measured on this machine");
  add_gpus(*plan_command, forecast);
  plan_command
      ->add_option(
          "--svg", forecast.svg,
          "file for a plot of step time and exposed share; with --gpu, of what runs when for a bucket of 25 MiB")
      ->type_name("FILE");
  return plan_command;
}

CLI::App* add_ratio(CLI::App& app, RatioOptions& options) {
  auto* ratio_command = app.add_subcommand(
      "ratio", "Show ratio, error and speed of each codec on your own gradients: gradwire ratio gradients.npy");
  ratio_command
      ->add_option(
          "files", options.files,
          "gradients: .npy, safetensors, raw elements (--dtype), what char_lm or gradwire run "
          "--record-gradients wrote; a directory of them. A tensor that is in several files has one step in each")
      ->type_name("FILE")
      ->required();
  ratio_command->add_option("--dtype", options.dtype, "what raw files hold, little endian: f32, f16, bf16 or f64")
      ->type_name("TYPE");
  ratio_command->add_option("--codecs", options.codecs, "such as bf16,int8,topk(1%)+int8")
      ->delimiter(',')
      ->allow_extra_args(false)  // files may follow
      ->capture_default_str();
  ratio_command
      ->add_option("--policy", options.policy,
                   "a policy file, which adds a row with the codec that each tensor has by it")
      ->type_name("FILE");
  ratio_command
      ->add_option(
          "--steps", options.steps,
          "steps for the error with feedback; default: all recorded steps. A single recorded step is repeated, "
          "8 times by default")
      ->type_name("N");
  ratio_command->add_option("--json", options.json, "write every number there, by codec and tensor")->type_name("FILE");
  ratio_command->add_option("--svg", options.svg, "draw error over ratio there")->type_name("FILE");
  return ratio_command;
}

}  // namespace gradwire::cli
