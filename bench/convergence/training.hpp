// Runs data-parallel SGD with momentum: ranks are threads, each with its own shard; gradients go through gradwire, and
// momentum is applied after aggregation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/convergence/model.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::convergence {

/// The training, which is the same for all policies and seeds of a comparison.
struct Training {
  Shape shape;
  std::uint64_t steps = 2000;
  std::size_t batch = 16;  // samples per rank and step, drawn from its shard with replacement
  float learning_rate = 0.05F;
  float momentum = 0.9F;
  double decay_from = 1;     // share of the steps after which the learning rate falls linearly to zero
  int evaluations = 16;      // of the loss over all shards, at steps in a geometric series that ends with the last one
  std::optional<Link> link;  // emulated
};

/// How gradients are averaged.
struct Reducing {
  Policy policy;
  /// With `bare`, gradients bypass the policy layer: one all-reduce of all gradients with the policy's codecs and no
  /// residuals. This is for sign without error feedback, which a policy refuses because it diverges.
  bool bare = false;
};

struct Run {
  struct Point {
    std::uint64_t step = 0;
    double megabytes = 0;  // sent so far, mean over ranks
    double loss = 0;       // mean over all samples of all shards
  };
  double final_loss = 0;  // NaN if parameters stopped being finite
  double accuracy = 0;    // on the test set, per cent; NaN without one
  std::vector<Point> curve;
  Statistics totals;                 // over all ranks
  std::uint64_t residual_bytes = 0;  // of all ranks; 0: no error feedback
  double step_seconds = 0;           // median of rank 0: forward, backward, reduction, update
  double exposed_seconds = 0;        // the part of a step after the backward pass
  std::uint64_t parameters = 0;

  [[nodiscard]] bool diverged() const;
  /// Returns the bits sent for each element and hop: 32 for uncompressed fp32.
  [[nodiscard]] double bits_per_element() const;
};

/// Trains with one rank for each shard. All randomness is a function of `seed`, so that runs with equal seeds differ
/// only in `reducing`. `test` may be null.
[[nodiscard]] Run train(const Training& training, const std::vector<Samples>& shards, const Samples* test,
                        const Reducing& reducing, std::uint64_t seed);

}  // namespace gradwire::convergence
