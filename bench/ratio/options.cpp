#include "bench/ratio/options.hpp"

#include "bench/support/command_line.hpp"

namespace gradwire::bench {

RatioOptions parse_ratio_options(int argc, char** argv) {
  RatioOptions options;
  CommandLine line{
      "What compression does to gradients, layer by layer: nominal ratio (frame sizes) and ratio counted at the "
      "transport of a real all-reduce, error, codec speed, and speed-up against dense on four links."};
  line.option("--dump", options.dump, "Gradients, as char_lm writes them or your own job does (gradient_dump.hpp)")
      .required()
      .existing_file();
  line.option("--policy", options.policies, "Codecs, \"built-in\" or policy files");
  line.option("--lab", options.lab,
              "JSON of bench_all_reduce runs on a real link with as many ranks: its speed-ups replace predictions")
      .existing_file();
  line.option("--ranks", options.ranks, "Ranks, as threads here and in predictions").range(2, 64);
  line.option("--latency-us", options.latency_us, "Of one message, for predictions");
  line.option("--json", options.json, "Write every row to this file");
  line.option("--svg", options.svg, "Write a plot to this file");
  line.parse(argc, argv);
  return options;
}

}  // namespace gradwire::bench
