#include "bench/convergence/experiments.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::convergence {
namespace {

// Returns bounds of the ratio of the final loss to that of uncompressed training, with error feedback as `auto` sets
// it.
const std::map<std::string, double>& bounds() {
  static const std::map<std::string, double> table{{"int8", 1.01}, {"int4", 1.01},        {"int2", 1.03},
                                                   {"sign", 1.06}, {"topk10_int8", 1.02}, {"topk1_int8", 1.15}};
  return table;
}

bool is_dense(const Policy& policy) { return policy.defaults.codec == CodecSpec::parse("exact"); }

// Returns a larger model, to check that the results for one tile hold for several, each with an owner of its own.
Experiment large_experiment() {
  Experiment experiment = judged_experiment();
  experiment.part = "large";
  experiment.training.shape = {64, 256, 10};
  experiment.training.steps = 1000;
  experiment.mixture.inputs = 64;
  experiment.training.evaluations = 8;
  experiment.training.decay_from = 0.5;  // otherwise the noise of its steps hides the effect of compression
  experiment.mixture.spread = 0.35;
  experiment.samples = 16384;
  return experiment;
}

// Returns a model large enough that headers do not matter. The learning rate falls to zero, so that the accuracy at the
// end is that of a trained model and not of one step.
Experiment accuracy_experiment() {
  Experiment experiment = judged_experiment();
  experiment.part = "accuracy";
  experiment.training.shape = {256, 512, 10};
  experiment.training.steps = 800;
  experiment.training.batch = 8;
  experiment.training.evaluations = 3;
  experiment.training.decay_from = 0.5;
  experiment.mixture.inputs = 256;
  experiment.mixture.spread = 0.25;
  experiment.samples = 16384;
  experiment.test_samples = 50'000;
  return experiment;
}

Experiment make_experiment(const std::string& part, const Options& options) {
  Experiment experiment = part == "mlp"     ? judged_experiment()
                          : part == "large" ? large_experiment()
                                            : accuracy_experiment();
  experiment.link = Link::parse(options.link);
  experiment.seeds.assign(kSeeds.begin(), kSeeds.begin() + static_cast<std::ptrdiff_t>(options.seeds));
  if (options.quick) {
    experiment.training.steps = 20;
    experiment.timed_steps = 3;
    experiment.samples = 1024;
    experiment.test_samples = std::min<std::size_t>(experiment.test_samples, 1000);
  }
  experiment.training.steps = options.steps.value_or(experiment.training.steps);
  return experiment;
}

Variant as_written(const NamedPolicy& policy) { return {.policy = policy.name, .reducing = {.policy = policy.policy}}; }

// Returns a variant with error feedback on or off, whatever the policy's default.
Variant with_feedback(const NamedPolicy& policy, bool on) {
  Variant variant = as_written(policy);
  variant.feedback = on ? "on" : "off";
  variant.reducing.policy.defaults.error_feedback = on ? ErrorFeedback::on : ErrorFeedback::off;
  // A policy refuses sign without feedback, since that diverges; so this variant goes below the policy layer.
  variant.reducing.bare = !on && policy.policy.defaults.codec == CodecSpec::parse("sign");
  return variant;
}

Variant with_second_hop(const NamedPolicy& policy, const CodecSpec& second, const std::string& name) {
  Variant variant = as_written(policy);
  variant.second_hop = name;
  variant.reducing.policy.defaults.second_hop = second;
  return variant;
}

// Returns variants of the codec by which a shard's owner sends the sum, when each rank has chosen its own elements.
std::vector<Variant> second_hops(const NamedPolicy& policy, int ranks) {
  const CodecSpec first = policy.policy.defaults.codec;
  const auto keeping = [&](int factor) {
    CodecSpec spec = first;
    spec.k = static_cast<std::uint16_t>(std::min(4096, first.k * factor));
    return spec;
  };
  return {with_second_hop(policy, keeping(ranks), "k x ranks"), with_second_hop(policy, keeping(2), "k x 2"),
          with_second_hop(policy, CodecSpec::parse("int8"), "int8"),
          with_second_hop(policy, CodecSpec::parse("int4"), "int4")};
}

std::vector<Row> mlp_rows(const Comparison& comparison, const std::vector<NamedPolicy>& policies, int ranks) {
  std::vector<Row> rows, hops;
  for (const NamedPolicy& policy : policies) {
    Variant variant = as_written(policy);
    const auto bound = bounds().find(policy.name);
    if (bound != bounds().end()) {
      variant.bound = bound->second;
    }
    rows.push_back(comparison.probe(variant));
    if (!is_dense(policy.policy)) {
      rows.push_back(comparison.probe(with_feedback(policy, !rows.back().keeps_residuals)));
    }
    if (policy.policy.defaults.codec.k != 0) {
      for (const Variant& hop : second_hops(policy, ranks)) {
        hops.push_back(comparison.probe(hop));
      }
    }
  }
  rows.insert(rows.end(), hops.begin(), hops.end());
  return rows;
}

std::vector<Row> large_rows(const Comparison& comparison, const std::vector<NamedPolicy>& policies, int ranks) {
  const std::set<std::string> plain{"dense", "int4", "int2", "sign"};
  std::vector<Row> rows;
  for (const NamedPolicy& policy : policies) {
    if (policy.policy.defaults.codec.k != 0) {
      for (const Variant& hop : second_hops(policy, ranks)) {
        rows.push_back(comparison.probe(hop));
      }
    } else if (plain.contains(policy.name)) {
      rows.push_back(comparison.probe(as_written(policy)));
    }
  }
  return rows;
}

std::vector<Row> accuracy_rows(const Comparison& comparison, const std::vector<NamedPolicy>& policies) {
  std::vector<Row> rows;
  for (const NamedPolicy& policy : policies) {
    Row row = comparison.probe(as_written(policy));
    if (is_dense(policy.policy) || row.ratio >= kAimedRatio) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

std::vector<NamedPolicy> load_policies(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::filesystem::path> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".toml") {
        inside.push_back(entry.path());
      }
    }
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  std::vector<NamedPolicy> policies;
  policies.reserve(files.size());
  for (const auto& file : files) {
    policies.push_back({file.stem().string(), Policy::load(file)});
  }
  if (policies.empty()) {
    throw Error(ErrorCode::invalid_argument, "--policies: no .toml file there");
  }
  std::stable_sort(policies.begin(), policies.end(), [](const auto& a, const auto& b) {
    const CodecSpec x = a.policy.defaults.codec, y = b.policy.defaults.codec;
    return std::tuple(x.k != 0, -x.k, x.values) < std::tuple(y.k != 0, -y.k, y.values);
  });
  return policies;
}

Experiment judged_experiment() {
  Experiment experiment;
  experiment.part = "mlp";
  experiment.training.shape = {32, 64, 10};
  experiment.mixture.spread = 0.7;
  experiment.samples = 8192;
  experiment.seeds.assign(kSeeds.begin(), kSeeds.end());
  return experiment;
}

std::vector<Row> run_part(const std::string& part, const std::vector<NamedPolicy>& policies, const Options& options) {
  const Experiment experiment = make_experiment(part, options);
  const Comparison comparison(experiment);
  std::fprintf(stderr, "%s: measuring steps over an emulated link\n", part.c_str());
  std::vector<Row> rows = part == "mlp"     ? mlp_rows(comparison, policies, experiment.ranks)
                          : part == "large" ? large_rows(comparison, policies, experiment.ranks)
                                            : accuracy_rows(comparison, policies);
  comparison.train_all(rows);
  return rows;
}

}  // namespace gradwire::convergence
