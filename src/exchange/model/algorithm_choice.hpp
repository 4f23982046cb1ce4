// Chooses the algorithm of an all-reduce where the policy says "auto": the one that the cost model finds quickest. It
// is a pure function of inputs that are equal on all ranks, so that all choose the same and nothing is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "exchange/tiers.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/link.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::exchange {

/// The properties of an all-reduce that are known before it begins.
struct AllReduce {
  CodecSpec codec = {};                                // hierarchical: between nodes
  std::optional<CodecSpec> second_hop = std::nullopt;  // where the caller named one: an owner then encodes its sum
  std::optional<CodecSpec> intra = std::nullopt;       // where the caller named one
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  bool native = false;  // dense is allowed: nothing is ever encoded, and the order of the sum is free
  friend bool operator==(const AllReduce&, const AllReduce&) = default;
};

struct AlgorithmChoice {
  Algorithm algorithm = Algorithm::two_shot;
  std::string why;  // "2 nodes of 2 ranks", "each node has one rank"
};

/// `link`: the one between nodes, where it is given or measured. Otherwise a slow link with a low latency is assumed,
/// where a wrong guess costs least: on a faster link the choice costs a latency, on a slower one it would cost bytes.
[[nodiscard]] AlgorithmChoice choose_algorithm(const AllReduce& call, const Tiers& tiers,
                                               const std::optional<Link>& link);

/// A text for people, from small to large messages: "one_shot up to 16KiB, two_shot above".
[[nodiscard]] std::string algorithms_by_size(const AllReduce& call, const Tiers& tiers,
                                             const std::optional<Link>& link);

}  // namespace gradwire::exchange
