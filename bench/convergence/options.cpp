#include "bench/convergence/options.hpp"

#include <algorithm>

#include "bench/convergence/experiments.hpp"
#include "bench/support/command_line.hpp"

namespace gradwire::convergence {

Options parse_options(int argc, char** argv) {
  Options options;
  bench::CommandLine line{
      "What compression does to training: small classifiers with label-sorted shards, trained with each policy, with "
      "and "
      "without error feedback; loss as a ratio to uncompressed training with the same seed, and what was sent."};
  line.option("--parts", options.parts,
              "mlp: 32-64-10, the one that is judged, with second hops of topk; large: the same questions on "
              "64-256-10; accuracy: on a test set")
      .one_of({"mlp", "large", "accuracy"});
  line.option("--policies", options.policies, "Policy files, or folders of them (default: bench/convergence/policies)")
      .existing_path();
  line.option("--seeds", options.seeds, "How many of the fixed seeds").range(std::size_t{1}, kSeeds.size());
  line.option("--steps", options.steps, "Steps of training (default: each part's own)").range(2, 1'000'000);
  line.option("--link", options.link, "Emulated link, for the time of a step");
  line.flag("--quick", options.quick, "Few steps on little data, two seeds: whether it runs, not what it shows");
  line.option("--json", options.json, "Write every row to this file");
  line.option("--svg", options.svg, "Write plots of loss against megabytes sent to this file");
  line.parse(argc, argv);
  if (options.quick) {
    options.seeds = std::min<std::size_t>(options.seeds, 2);
  }
  return options;
}

}  // namespace gradwire::convergence
