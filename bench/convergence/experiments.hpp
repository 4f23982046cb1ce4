// Defines the experiments: the training, the policies, and the bounds that they must meet.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/convergence/comparison.hpp"
#include "bench/convergence/options.hpp"

namespace gradwire::convergence {

inline constexpr std::array<std::uint64_t, 5> kSeeds{11, 23, 37, 53, 71};
inline constexpr double kAimedRatio = 7.5;  // the accuracy part compares policies with at least this ratio
inline constexpr double kPointsLostAtMost = 0.1;

struct NamedPolicy {
  std::string name;  // name of its file, without .toml
  Policy policy;
};

/// Reads TOML files and folders of them. Dense codecs come first, by wire id, then topk from dense to sparse. Throws
/// Error, also if there is no policy.
[[nodiscard]] std::vector<NamedPolicy> load_policies(const std::vector<std::string>& paths);

/// Returns the label-sorted classifier of the tests and bounds: 32-64-10, 8 workers, SGD with momentum, 2000 steps.
[[nodiscard]] Experiment judged_experiment();

/// Runs a part ("mlp", "large", "accuracy") and returns all its rows.
[[nodiscard]] std::vector<Row> run_part(const std::string& part, const std::vector<NamedPolicy>& policies,
                                        const Options& options);

}  // namespace gradwire::convergence
