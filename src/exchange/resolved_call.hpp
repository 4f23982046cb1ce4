// Resolves a call of a collective to the codecs of its hops, the residuals that its encoders keep or fold in, and the
// schedule. It is one pure function, so that every caller and every rank gets the same; a caller adds memory, a store
// of residuals and an executor.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "codec/codec.hpp"
#include "exchange/collectives.hpp"
#include "exchange/hop_codecs.hpp"
#include "exchange/schedule.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::exchange {

/// A rank, and the group in which it takes part.
struct RankGroup {
  int rank = 0;
  int size = 1;
  std::shared_ptr<const Tiers> tiers = nullptr;  // for hierarchical
};

/// Whether the group's nodes allow a hierarchical call; otherwise it becomes two_shot.
[[nodiscard]] bool has_tiers(const RankGroup& group);

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

/// The transport's or library's own sum, which `dense` may use in place of frames: its dtypes and largest size.
struct NativeSum {
  bool f32 = false;
  bool f64 = false;
  bool half = false;                                                // f16 and bf16
  bool in_nodes = false;                                            // hierarchical: it sums inside nodes, too
  std::uint64_t below = std::numeric_limits<std::uint64_t>::max();  // bytes
  bool asks = false;            // uses the blocking call, at any size, where all ranks wait for it (Task::waits)
  bool compares_terms = false;  // ranks compare Task::terms and the elements in it, since it has no frames
  bool compares_first = false;  // they do so before it begins: MPI's sum may do anything where ranks' elements differ

  [[nodiscard]] bool has(DType dtype) const noexcept {
    return dtype == DType::f32 ? f32 : dtype == DType::f64 ? f64 : half;
  }
};
/// Below this, in bytes, dense uses the transport's own all-reduce where nothing was measured.
inline constexpr std::uint64_t kNativeBelowBytes = 64ULL << 10;
/// From there up to this, dense uses the blocking all-reduce where it may; above, Open MPI's takes longer than
/// two_shot.
inline constexpr std::uint64_t kInCallBelowBytes = 24ULL << 20;
[[nodiscard]] NativeSum native_sum(const Transport& transport, std::uint64_t below = kNativeBelowBytes);
/// Whether dense is the transport's blocking all-reduce (Transport::all_reduce) where its ranks wait: it sums the
/// dtype, the message is of middle size, and all ranks share a node, where no uncompressed algorithm of ours is faster.
[[nodiscard]] bool dense_in_call(const Transport& transport, DType dtype, std::uint64_t count, const Tiers& tiers);

/// Residuals of the elements that a call works on: the same on every rank that made the same calls.
struct HeldResiduals {
  bool any = false;    // some rank may hold residuals
  bool moved = false;  // a rank may hold owner residuals of elements that it does not own
};

/// A call as its caller asks for it.
struct CallRequest {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::two_shot;      // for an all-reduce; dense is exact everywhere
  CodecSpec codec = {};                           // hierarchical: between nodes
  std::optional<CodecSpec> second_hop = {};       // where the owner encodes its sum; none: the same as `codec`
  std::optional<CodecSpec> intra = std::nullopt;  // hierarchical: inside nodes; none: the same as `codec`
  DType dtype = DType::f32;
  std::uint64_t count = 0;                   // elements of the whole buffer
  std::vector<std::uint64_t> segments = {};  // by rank, for a reduce-scatter or an all-gather
  int root = 0;                              // for a broadcast
  bool weighted = false;
  bool feedback = false;        // encoders keep what they drop
  bool preconditioned = false;  // lossy codecs see values in units of a diagonal
  HeldResiduals held = {};
  ChunkSize chunk_bytes = kDefaultChunkBytes;
  NativeSum native = {};
};

/// The encode sites whose residuals a call keeps. Other residuals that are held of its elements are folded in.
struct ResidualSites {
  bool local = false;  // a rank's own values
  bool intra = false;  // a sum over a node
  bool owner = false;  // an owner's sum
  [[nodiscard]] bool any() const noexcept { return local || intra || owner; }
};

/// How a call uses residuals.
struct ResidualUse {
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  bool any = false;  // some rank holds or keeps residuals
  ResidualSites keeps = {};
  bool moved = false;        // some rank may hold owner residuals of elements that it does not own
  bool folds_owner = false;  // a weighted call folds owner residuals in, and needs the sum of weights first
  // The elements that this rank encodes at each site; empty where no residuals are kept.
  Range local = {};
  Range owned = {};
  std::vector<Range> summed = {};  // shards of other nodes that it sums for its node
  // Where a library sums inside nodes (ResolvedCall::node_sums): what this rank sums, in the order of lanes, and the
  // shard of each part that it owns. The ranges above are then empty.
  struct Part {
    Range summed;
    Range owned;
  };
  std::vector<Part> parts = {};
};

/// A resolved call as executors get it, without memory.
struct ResolvedCall {
  HopCodecs codecs;
  bool weighted = false;
  ResidualUse residuals = {};
  bool preconditioned = false;  // values that travel are divided by Task::preconditioner; residuals and results are not
  std::optional<DType> node_sums = std::nullopt;  // set where a library sums inside nodes: in this dtype

  /// Inputs are scaled by their share of the weights before they travel, as the tensor's own dtype has no room for w x.
  [[nodiscard]] bool scales_first() const noexcept { return weighted && codecs.scales_first(); }
  /// Nothing is encoded before the sum of weights is known.
  [[nodiscard]] bool weights_first() const noexcept { return weighted && codecs.weights_first(residuals.folds_owner); }
};

/// The elements of a rank's segment, in a call that has segments.
[[nodiscard]] ResidualUse::Range segment_of(const CallRequest& request, int rank);

struct Resolved {
  ResolvedCall call;
  Schedule schedule;
};

/// Error(unsupported) for a codec that has no values of the dtype; Error(internal) where a rank, root or segments do
/// not fit the group.
[[nodiscard]] Resolved resolve(const CallRequest& request, const RankGroup& group);

/// What a rank sums, lane by lane, where a library sums inside nodes; nothing where nodes or `count` do not allow it.
[[nodiscard]] std::vector<ResidualUse::Part> parts_of(std::uint64_t count, ChunkSize chunks, const RankGroup& group);
[[nodiscard]] std::uint64_t elements_of(const std::vector<ResidualUse::Part>& parts);

/// Whether resolve() makes the call the transport's or library's own sum.
[[nodiscard]] bool is_native(const CallRequest& request, const RankGroup& group);

/// Codecs that share one working type; where the tensor's dtype would give them two, they use f32.
/// `widened`: a 16-bit tensor travels as f32, since residuals travel with it. `node`: the codec of sums over a node,
/// which travel as f32 where the tensor has 16 bits, since a part of a mean may be larger than the mean.
[[nodiscard]] HopCodecs hop_codecs(CodecSpec first, CodecSpec second, DType dtype, bool widened = false,
                                   std::optional<CodecSpec> node = std::nullopt);

}  // namespace gradwire::exchange
