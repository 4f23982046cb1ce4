// Predicts how long a collective takes from the links, the codecs' speed and the shape of the world. The functions are
// pure; the planner, benchmarks and the choice of a codec share them. Models: Thakur, Rabenseifner, Gropp,
// "Optimization of collective communication operations in MPICH" (2005), with codec work beside the wire.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "gradwire/reduction.hpp"

namespace gradwire::exchange {

/// The links of one tier, as one rank (inside a node) or one node (between nodes) sees them, in each direction.
struct LinkCost {
  double latency_seconds = 0;  // from a send to its arrival, without the time for its bytes
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double seen_bytes = 0;  // bytes of the smallest exchange that showed this rate and no burst; 0: none did
};

/// `ranks_per_node` ranks share the link of their node. The last node may have fewer; the model assumes that all are
/// full.
struct Cluster {
  int ranks = 1;
  int ranks_per_node = 1;
  double ranks_per_core = 1;     // above 1: ranks take turns, and their work takes that many times as long
  double transport_seconds = 0;  // core time for each byte that a rank sends while it receives as much
  LinkCost inter = {};           // between nodes
  LinkCost intra = {};           // inside a node; not used with one rank a node
  double in_flight_bytes = std::numeric_limits<double>::infinity();  // memory of a rank's frames under way
};

/// Bytes a second of a link from two exchanges, of `bytes` and of half as many, given the time of each without the
/// latency. An idle link may let the first bytes of both through at once; the rate is then that of the bytes that the
/// larger one added.
[[nodiscard]] double link_rate(double bytes, double half_seconds, double seconds);

/// The cost of one codec: bytes of an element, and the time of one thread for it.
struct CodecCost {
  double bytes = 4;           // on the wire for each element, with its share of frame headers
  double encode_seconds = 0;  // for an element
  double decode_seconds = 0;  // for an element, which is decoded and added
};

/// The cost of one all-reduce, in seconds. `total` takes the overlap of its parts into account.
struct Cost {
  double wire = 0;     // bytes over the slowest tier's rate
  double codec = 0;    // work of one rank, with its transport's
  double latency = 0;  // sum over the messages that wait for each other
  double total = 0;
};

/// Ratio of a lane's frames in memory to those that a rank has on the link at once: its own and its peers', of both
/// hops.
inline constexpr double kFramesInFlight = 4;

/// An uncompressed ring over all ranks: 2(P-1) latencies and 2(P-1)/P of the bytes over the slowest link it crosses.
/// Adding costs nothing in this model, so compression must beat a fast baseline.
[[nodiscard]] Cost dense_cost(const Cluster& cluster, double elements, double element_bytes);

/// two_shot over all ranks alike: each sends 2(P-1)/P of the encoded bytes in two hops, and encodes and decodes 3 - 1/P
/// times the elements. Ranks of a node share its link.
[[nodiscard]] Cost two_shot_cost(const Cluster& cluster, double elements, const CodecCost& first,
                                 const CodecCost& second, double chunk_bytes = kDefaultChunkBytes);

/// one_shot: each rank sends everything to all others, with one latency; a rank decodes all P parts.
[[nodiscard]] Cost one_shot_cost(const Cluster& cluster, double elements, const CodecCost& codec,
                                 double chunk_bytes = kDefaultChunkBytes);

/// hierarchical: reduce-scatter inside the node (`intra`), two_shot between ranks of equal place in their nodes
/// (`inter`), all-gather of the encoded result inside the node. Needs nodes of more than one rank, and several.
[[nodiscard]] Cost hierarchical_cost(const Cluster& cluster, double elements, const CodecCost& intra,
                                     const CodecCost& inter, double chunk_bytes = kDefaultChunkBytes);

/// One bucket of a step.
struct BucketCost {
  double ready_seconds = 0;  // from the start of the step until its last gradient is ready
  double seconds = 0;        // duration of its reduction alone
};

struct StepCost {
  double seconds = 0;  // from start to the last result
  double exposed = 0;  // the part of it with communication only
};

/// Buckets in the order in which they start, one after the other; `compute_seconds`: until the last gradient is there.
[[nodiscard]] StepCost step_cost(double compute_seconds, std::span<const BucketCost> buckets);

}  // namespace gradwire::exchange
