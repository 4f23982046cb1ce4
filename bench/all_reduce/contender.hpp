// One way to all-reduce: a library with its settings. The benchmark uses every library through this interface.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/all_reduce/options.hpp"

namespace gradwire::bench {

class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Sums `input` over all ranks into `output`, which is other memory of the same size. Returns the bytes that this
  /// rank sent: as counted by the library, or those of a perfect ring if it does not count.
  virtual std::uint64_t all_reduce(std::span<const float> input, std::span<float> output) = 0;
};

/// Makes a contender, and holds the names for its rows in the table. `make` is collective over the world and is called
/// once for each message size, so that the memory of one size is not hidden in the buffers of the size before.
struct ContenderRecipe {
  std::string implementation;  // gradwire, mpi, gloo
  std::string codec;           // canonical spec; fp32 for the others
  std::string algorithm;       // two_shot, one_shot, hierarchical, dense; native, ring
  std::function<std::unique_ptr<Contender>()> make;
  bool error_feedback = false;
  std::string second_hop = {};  // codec of the owners' encoding; empty if there is none
  std::string intra = {};       // codec inside nodes; likewise
};

/// Returns the bytes that a rank sends in a perfect ring all-reduce: 2 (P-1)/P of the message.
[[nodiscard]] double ring_bytes(int ranks, double message_bytes);

[[nodiscard]] ContenderRecipe gradwire_contender(const Options& options, const std::string& codec,
                                                 const std::string& algorithm);
[[nodiscard]] ContenderRecipe mpi_contender();
#ifdef GRADWIRE_HAVE_GLOO
/// Returns Gloo's ring over TCP, bound to `options.interface`, or to the host's own address if that is empty.
[[nodiscard]] ContenderRecipe gloo_contender(const Options& options);
#endif

/// Returns the recipes for all contenders that the options ask for, in table order.
[[nodiscard]] std::vector<ContenderRecipe> make_recipes(const Options& options);

}  // namespace gradwire::bench
