#include "bench/convergence/comparison.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>

namespace gradwire::convergence {
namespace {

Summary summarize_seeds(const std::vector<Row::Seed>& seeds, const std::function<double(const Row::Seed&)>& value) {
  std::vector<double> values;
  values.reserve(seeds.size());
  for (const Row::Seed& seed : seeds) {
    values.push_back(value(seed));
  }
  return summarize(values);
}

// Adds `run`'s part of the mean over `seeds` runs. A run that diverged ends early, and so does the mean.
void add_to_mean(std::vector<Run::Point>& mean, const std::vector<Run::Point>& run, bool first, double seeds) {
  if (first) {
    mean.assign(run.size(), {});
  }
  mean.resize(std::min(mean.size(), run.size()));
  for (std::size_t i = 0; i < mean.size(); ++i) {
    mean[i].step = run[i].step;
    mean[i].megabytes += run[i].megabytes / seeds;
    mean[i].loss += run[i].loss / seeds;
  }
}

}  // namespace

Summary Row::loss() const {
  return summarize_seeds(seeds, [](const Seed& seed) { return seed.loss; });
}
Summary Row::loss_ratio() const {
  return summarize_seeds(seeds, [](const Seed& seed) { return seed.loss / seed.dense_loss; });
}
Summary Row::accuracy() const {
  return summarize_seeds(seeds, [](const Seed& seed) { return seed.accuracy; });
}
Summary Row::accuracy_lost() const {
  return summarize_seeds(seeds, [](const Seed& seed) { return seed.dense_accuracy - seed.accuracy; });
}

std::vector<Samples> Comparison::shards(std::uint64_t seed) const {
  return shard_by_label(draw(experiment_.mixture, experiment_.samples, seed, 0),
                        static_cast<std::size_t>(experiment_.ranks));
}

Row Comparison::probe(const Variant& variant) const {
  Training training = experiment_.training;
  training.steps = experiment_.timed_steps;
  training.evaluations = 1;
  training.link = experiment_.link;
  const std::uint64_t seed = experiment_.seeds.front();
  const Run run = train(training, shards(seed), nullptr, variant.reducing, seed);
  Row row{.part = experiment_.part, .model = training.shape.to_string(), .variant = variant};
  row.keeps_residuals = run.residual_bytes > 0;
  row.parameters = run.parameters;
  row.ratio = run.totals.ratio();
  row.bits_per_element = run.bits_per_element();
  row.bytes_per_step = static_cast<double>(run.totals.bytes_sent) / static_cast<double>(training.steps) /
                       static_cast<double>(experiment_.ranks);
  row.step_seconds = run.step_seconds;
  row.exposed_seconds = run.exposed_seconds;
  return row;
}

void Comparison::train_all(std::vector<Row>& rows) const {
  const Reducing dense{.policy = Policy::uniform("exact")};
  for (const std::uint64_t seed : experiment_.seeds) {
    const std::vector<Samples> parts = shards(seed);
    const bool tests = experiment_.test_samples > 0;
    const Samples test = tests ? draw(experiment_.mixture, experiment_.test_samples, seed, 1) : Samples{};
    const Run base = train(experiment_.training, parts, tests ? &test : nullptr, dense, seed);
    for (Row& row : rows) {
      const bool same = row.variant.reducing.policy.defaults.codec == dense.policy.defaults.codec;
      const Run run =
          same ? base : train(experiment_.training, parts, tests ? &test : nullptr, row.variant.reducing, seed);
      add_to_mean(row.curve, run.curve, row.seeds.empty(), static_cast<double>(experiment_.seeds.size()));
      row.seeds.push_back({seed, run.final_loss, base.final_loss, run.accuracy, base.accuracy});
    }
    std::fprintf(stderr, "%s: seed %llu done\n", experiment_.part.c_str(), static_cast<unsigned long long>(seed));
  }
}

}  // namespace gradwire::convergence
