// What is trained, with which policies, and what is asked of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/convergence/comparison.hpp"
#include "bench/convergence/options.hpp"

namespace gradwire::convergence {

inline constexpr std::array<std::uint64_t, 5> kSeeds{11, 23, 37, 53, 71};
inline constexpr double kAimedRatio = 7.5;  // and above: what the accuracy part compares
inline constexpr double kPointsLostAtMost = 0.1;

struct NamedPolicy {
  std::string name;  // of its file, without .toml
  Policy policy;
};

/// From TOML files and folders of them: dense codecs by wire id, then topk from dense to sparse. Throws Error, also
/// where there is none.
[[nodiscard]] std::vector<NamedPolicy> load_policies(const std::vector<std::string>& paths);

/// The label-sorted classifier of the tests and bounds: 32-64-10, 8 workers, SGD with momentum, 2000 steps.
[[nodiscard]] Experiment judged_experiment();

/// All rows of a part ("mlp", "large", "accuracy").
[[nodiscard]] std::vector<Row> run_part(const std::string& part, const std::vector<NamedPolicy>& policies,
                                        const Options& options);

}  // namespace gradwire::convergence
