#include "bench/convergence/data.hpp"

#include <algorithm>
#include <numeric>

#include "bench/convergence/random.hpp"

namespace gradwire::convergence {
namespace {

constexpr std::uint64_t kCentreStream = 2;
constexpr std::uint64_t kSampleStream = 3;  // for part 0; each further part has the next number

}  // namespace

Samples draw(const Mixture& mixture, std::size_t count, std::uint64_t seed, std::uint64_t part) {
  Random centre_random(seed, kCentreStream);
  std::vector<float> centres(mixture.classes * mixture.components * mixture.inputs);
  for (float& value : centres) {
    value = static_cast<float>(mixture.spread) * centre_random.gauss();
  }
  Random random(seed, kSampleStream + part);
  Samples samples{.inputs = mixture.inputs, .features = {}, .labels = {}};
  samples.features.reserve(count * mixture.inputs);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = i % mixture.classes;
    const std::size_t component = label * mixture.components + random.below(mixture.components);
    samples.labels.push_back(static_cast<std::uint8_t>(label));
    for (std::size_t d = 0; d < mixture.inputs; ++d) {
      samples.features.push_back(centres[component * mixture.inputs + d] + random.gauss());
    }
  }
  return samples;
}

std::vector<Samples> shard_by_label(const Samples& samples, std::size_t shards) {
  std::vector<std::size_t> order(samples.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return samples.labels[a] < samples.labels[b]; });
  std::vector<Samples> result;
  std::size_t next = 0;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const std::size_t count = order.size() / shards + (shard < order.size() % shards ? 1 : 0);
    Samples& part = result.emplace_back(Samples{.inputs = samples.inputs, .features = {}, .labels = {}});
    for (const std::size_t end = next + count; next < end; ++next) {
      const float* row = samples.row(order[next]);
      part.features.insert(part.features.end(), row, row + samples.inputs);
      part.labels.push_back(samples.labels[order[next]]);
    }
  }
  return result;
}

}  // namespace gradwire::convergence
