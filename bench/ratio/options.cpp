#include "bench/ratio/options.hpp"

#include "bench/support/command_line.hpp"

namespace gradwire::bench {

RatioOptions parse_ratio_options(int argc, char** argv) {
  RatioOptions options;
  CLI::App app{
      "What compression does to gradients, layer by layer: nominal ratio (frame sizes) and ratio counted at the "
      "transport of a real all-reduce, error, codec speed, and speed-up against dense on four links."};
  app.add_option("--dump", options.dump, "Gradients, as char_lm writes them or your own job does (gradient_dump.hpp)")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--policy", options.policies, "Codecs, \"built-in\" or policy files")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--lab", options.lab,
                 "JSON of bench_all_reduce runs on a real link with as many ranks: its speed-ups replace predictions")
      ->delimiter(',')
      ->check(CLI::ExistingFile);
  app.add_option("--ranks", options.ranks, "Ranks, as threads here and in predictions")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--latency-us", options.latency_us, "Of one message, for predictions")->capture_default_str();
  app.add_option("--json", options.json, "Write every row to this file");
  app.add_option("--svg", options.svg, "Write a plot to this file");
  parse(app, argc, argv);
  return options;
}

}  // namespace gradwire::bench
