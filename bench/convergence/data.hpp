// Makes synthetic classification data: each class is a mixture of Gaussians, and classes overlap, so that no model
// reaches zero loss. The samples can be sorted by label and cut into one shard for each rank, so that ranks see
// different data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/convergence/model.hpp"

namespace gradwire::convergence {

struct Mixture {
  std::size_t inputs = 32, classes = 10;
  std::size_t components = 3;  // of each class
  double spread = 1;           // standard deviation of the components' centres, in each dimension; noise has 1
};

/// Returns `count` samples whose labels take turns (balanced); a pure function of the mixture, `seed` and `part`. Parts
/// of one seed share the centres, so that one can train and another test.
[[nodiscard]] Samples draw(const Mixture& mixture, std::size_t count, std::uint64_t seed, std::uint64_t part);

/// Returns the samples sorted by label, in `shards` pieces of equal size (the first ones are larger by one if the
/// number does not divide).
[[nodiscard]] std::vector<Samples> shard_by_label(const Samples& samples, std::size_t shards);

}  // namespace gradwire::convergence
