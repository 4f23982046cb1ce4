// Words shared by Communicator and Session: reductions, algorithms, options of one collective.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "gradwire/codec_spec.hpp"

namespace gradwire {

enum class Reduction : std::uint8_t { sum, mean };

/// How an all-reduce is carried out (docs/explanation/internals.md, "Collectives").
enum class Algorithm : std::uint8_t {
  two_shot,      // encode shards, all-to-all, owner reduces and encodes once, all-gather
  one_shot,      // all-gather of every rank's frames, each rank decodes all; for small messages
  hierarchical,  // a reduce-scatter inside each node, two_shot between nodes among ranks of equal place, an all-gather
                 // inside each node; two_shot alone where nodes are uneven or there is only one tier
  dense,  // uncompressed: the transport's own all-reduce below 64 KiB where it has the dtype, else two_shot over exact
  automatic,  // "auto": the cost model chooses the quickest of these for each bucket or call
};

/// Bytes of a chunk on the wire unless asked otherwise: just below 64 KiB, where Open MPI's TCP sends without a
/// handshake (docs/decisions/wire.md, D8).
inline constexpr std::uint64_t kDefaultChunkBytes = 56ULL << 10;

/// Largest memory for the frames that a rank has under way, beyond four chunks of each shard: enough to fill a link
/// that is fast and has a high latency.
inline constexpr std::uint64_t kDefaultInFlightBytes = 64ULL << 20;

[[nodiscard]] std::string_view to_string(Algorithm algorithm) noexcept;
/// Throws Error(invalid_argument) that lists the names.
[[nodiscard]] Algorithm parse_algorithm(std::string_view text);

}  // namespace gradwire
