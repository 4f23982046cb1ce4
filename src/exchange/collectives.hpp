// The collectives of gradwire, as schedules for one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "codec/codec.hpp"
#include "exchange/hop_codecs.hpp"
#include "exchange/schedule.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::exchange {

/// The rank that runs a schedule, and the properties of the call that the schedule depends on.
struct Shape {
  int rank = 0;
  int world_size = 1;
  bool weighted = false;  // weights travel beside the first frames
  ChunkSize chunk_bytes = kDefaultChunkBytes;
  bool folds_owner = false;  // owner residuals are folded in, which needs the sum of weights before the first encoding
  std::shared_ptr<const Tiers> tiers = nullptr;  // for hierarchical, which is two_shot without it
};

/// An all-reduce algorithm: one row of the registry. `make` is called with a world of two and more.
struct AlgorithmEntry {
  Algorithm algorithm;
  std::string_view name;
  Schedule (*make)(const Shape& shape, std::uint64_t count, const HopCodecs& codecs);
};
[[nodiscard]] std::span<const AlgorithmEntry> algorithms() noexcept;

/// Whether the owner of a shard encodes its sum.
[[nodiscard]] inline bool encodes_at_owner(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::two_shot || algorithm == Algorithm::hierarchical;
}

/// Any registered algorithm over frames; a world of one copies.
[[nodiscard]] Schedule all_reduce(Algorithm algorithm, const Shape& shape, std::uint64_t count,
                                  const HopCodecs& codecs);
/// Leaves segment r of `counts` reduced on rank r, without a second encoding.
[[nodiscard]] Schedule reduce_scatter(const Shape& shape, std::span<const std::uint64_t> counts,
                                      const HopCodecs& codecs);
/// Segment r of `counts` goes from rank r to all.
[[nodiscard]] Schedule all_gather(const Shape& shape, std::span<const std::uint64_t> counts, const HopCodecs& codecs);
/// Sends from `root` to all: shards are scattered over the other ranks, each of which passes its shard on as received.
[[nodiscard]] Schedule broadcast(const Shape& shape, int root, std::uint64_t count, const HopCodecs& codecs);
/// The transport's own all-reduce, for a transport that has the dtype.
struct NativeOptions {
  bool asks = false;            // ranks ask whether all wait, and then make the blocking call
  bool compares_terms = false;  // ranks compare Task::terms and the elements
  bool compares_first = false;  // they do so before the sum begins, not beside it
};
[[nodiscard]] Schedule native_all_reduce(const Shape& shape, std::uint64_t count, NativeOptions options = {});

/// hierarchical where a library sums inside nodes: needs tiers of use, and a bucket that fits (TierPartition::fits).
[[nodiscard]] Schedule all_reduce_node_sums(const Shape& shape, std::uint64_t count, const HopCodecs& codecs);

// Rows of the registry, one file each.
[[nodiscard]] Schedule all_reduce_two_shot(const Shape& shape, std::uint64_t count, const HopCodecs& codecs);
[[nodiscard]] Schedule all_reduce_one_shot(const Shape& shape, std::uint64_t count, const HopCodecs& codecs);
[[nodiscard]] Schedule all_reduce_hierarchical(const Shape& shape, std::uint64_t count, const HopCodecs& codecs);

// Pieces shared by the collectives.
/// The schedule of a world of one, which copies the first shard of `partition` from input to output.
[[nodiscard]] Schedule copy_schedule(std::string_view name, const Partition& partition);
/// Adds the exchange of weights to lane 0 of a weighted schedule: beside the first frames, before the reduction. Where
/// values travel in the tensor's own dtype it comes before the encoding instead, which then scales by w / sum of w,
/// since w x may be beyond the dtype. `round`: kBesideFirst or kBeforeFirst. `answer`: the slot of the answer to
/// native_ask, which is awaited first.
inline constexpr int kBeforeFirst = -1;
inline constexpr int kBesideFirst = 0;
void add_weight_exchange(Lane& lane, std::uint64_t lane_index, const Shape& shape, int round,
                         std::vector<Slot> answer = {});
[[nodiscard]] inline bool weights_first(const Shape& shape, const HopCodecs& codecs) {
  return codecs.weights_first(shape.folds_owner);
}
/// The rank `distance` after this one. Peers in this order differ between ranks, so that not all begin with the same.
[[nodiscard]] inline int peer_after(const Shape& shape, int distance) {
  return (shape.rank + distance) % shape.world_size;
}

}  // namespace gradwire::exchange
