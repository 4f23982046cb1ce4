// Which algorithm an all-reduce takes where the policy says "auto": the one that the cost model finds quickest. A pure
// function of what all ranks hold alike, so that all choose alike and nothing is measured.
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

/// What is known of an all-reduce before it begins.
struct AllReduce {
  CodecSpec codec = {};                                // hierarchical: between nodes
  std::optional<CodecSpec> second_hop = std::nullopt;  // as asked for: then an owner encodes its sum
  std::optional<CodecSpec> intra = std::nullopt;       // as asked for
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  bool native = false;  // dense may serve: nothing is ever encoded, and the order of the sum is free
  friend bool operator==(const AllReduce&, const AllReduce&) = default;
};

struct AlgorithmChoice {
  Algorithm algorithm = Algorithm::two_shot;
  std::string why;  // "2 nodes of 2 ranks", "each node has one rank"
};

/// `link`: between nodes, where it is given or measured. Else one is assumed that is slow but near, where a wrong guess
/// costs least: on a faster link it is a latency, on a slower one it would be bytes.
[[nodiscard]] AlgorithmChoice choose_algorithm(const AllReduce& call, const Tiers& tiers,
                                               const std::optional<Link>& link);

/// For people, from small to large messages: "one_shot up to 16KiB, two_shot above".
[[nodiscard]] std::string algorithms_by_size(const AllReduce& call, const Tiers& tiers,
                                             const std::optional<Link>& link);

}  // namespace gradwire::exchange
