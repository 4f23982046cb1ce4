#include "bench/convergence/options.hpp"

#include <algorithm>

#include "bench/convergence/experiments.hpp"
#include "bench/support/command_line.hpp"

namespace gradwire::convergence {

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app{
      "What compression does to training: small classifiers with label-sorted shards, trained with each policy, with "
      "and "
      "without error feedback; loss as a ratio to uncompressed training with the same seed, and what was sent."};
  app.add_option("--parts", options.parts,
                 "mlp: 32-64-10, the one that is judged, with second hops of topk; large: the same questions on "
                 "64-256-10; accuracy: on a test set")
      ->delimiter(',')
      ->check(CLI::IsMember({"mlp", "large", "accuracy"}))
      ->capture_default_str();
  app.add_option("--policies", options.policies,
                 "Policy files, or folders of them (default: bench/convergence/policies)")
      ->delimiter(',')
      ->check(CLI::ExistingPath);
  app.add_option("--seeds", options.seeds, "How many of the fixed seeds")
      ->check(CLI::Range(std::size_t{1}, kSeeds.size()))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of training (default: each part's own)")
      ->check(CLI::Range(2, 1'000'000));
  app.add_option("--link", options.link, "Emulated link, for the time of a step")->capture_default_str();
  app.add_flag("--quick", options.quick, "Few steps on little data, two seeds: whether it runs, not what it shows");
  app.add_option("--json", options.json, "Write every row to this file");
  app.add_option("--svg", options.svg, "Write plots of loss against megabytes sent to this file");
  bench::parse(app, argc, argv);
  if (options.quick) {
    options.seeds = std::min<std::size_t>(options.seeds, 2);
  }
  return options;
}

}  // namespace gradwire::convergence
