// What a call of a collective resolves to: codecs of its hops, residuals that its encoders keep or fold in, and the
// schedule. One pure function, so that every caller and every rank comes to the same; a caller brings memory, a store
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

/// Who takes part: a rank, and the others.
struct RankGroup {
  int rank = 0;
  int size = 1;
  std::shared_ptr<const Tiers> tiers = nullptr;  // for hierarchical
};

/// Whether a hierarchical call has nodes to go by; else it is two_shot.
[[nodiscard]] bool has_tiers(const RankGroup& group);

enum class Function : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

/// The transport's or library's own sum, which `dense` may use in place of frames: for which dtypes, and how large.
struct NativeSum {
  bool f32 = false;
  bool f64 = false;
  bool half = false;                                                // f16 and bf16
  std::uint64_t below = std::numeric_limits<std::uint64_t>::max();  // bytes
  bool asks = false;            // the blocking call, of any size, where all ranks wait for it (Task::waits)
  bool compares_terms = false;  // it has no frames, so it compares Task::terms and the elements itself
  bool compares_first = false;  // before it begins: MPI's sum may do anything where ranks differ in the elements

  [[nodiscard]] bool has(DType dtype) const noexcept {
    return dtype == DType::f32 ? f32 : dtype == DType::f64 ? f64 : half;
  }
};
/// Below this, in bytes, dense uses the transport's own all-reduce where nothing was measured.
inline constexpr std::uint64_t kNativeBelowBytes = 64ULL << 10;
/// And from there up to this its blocking one, where it may: Open MPI's takes longer than two_shot above.
inline constexpr std::uint64_t kInCallBelowBytes = 24ULL << 20;
[[nodiscard]] NativeSum native_sum(const Transport& transport, std::uint64_t below = kNativeBelowBytes);
/// Whether dense is the transport's blocking all-reduce (Transport::all_reduce) where its ranks wait: it sums the
/// dtype, the message is of middle size, and all ranks share a node, where nothing uncompressed of ours is faster.
[[nodiscard]] bool dense_in_call(const Transport& transport, DType dtype, std::uint64_t count, const Tiers& tiers);

/// Residuals of the elements that a call works on: the same on every rank that made the same calls.
struct HeldResiduals {
  bool any = false;    // some rank may hold some
  bool moved = false;  // owner residuals may be of elements that their rank does not own
};

/// What is asked for.
struct Request {
  Function function = Function::all_reduce;
  Algorithm algorithm = Algorithm::two_shot;      // of an all-reduce; dense is exact everywhere
  CodecSpec codec = {};                           // hierarchical: between nodes
  std::optional<CodecSpec> second_hop = {};       // where the owner encodes its sum; none: as `codec`
  std::optional<CodecSpec> intra = std::nullopt;  // hierarchical: inside nodes; none: as `codec`
  DType dtype = DType::f32;
  std::uint64_t count = 0;                   // elements of the whole buffer
  std::vector<std::uint64_t> segments = {};  // by rank, of a reduce-scatter or an all-gather
  int root = 0;                              // of a broadcast
  bool weighted = false;
  bool feedback = false;        // encoders keep what they drop
  bool preconditioned = false;  // lossy codecs see values in units of a diagonal
  HeldResiduals held = {};
  ChunkSize chunk_bytes = kDefaultChunkBytes;
  NativeSum native = {};
};

/// Encode sites: those whose residuals a call keeps. What else is held of its elements is folded in.
struct ResidualSites {
  bool local = false;  // a rank's own values
  bool intra = false;  // a sum over a node
  bool owner = false;  // an owner's sum
  [[nodiscard]] bool any() const noexcept { return local || intra || owner; }
};

/// What a call does with residuals.
struct ResidualUse {
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  bool any = false;  // some rank holds some, or keeps some
  ResidualSites keeps = {};
  bool folds_owner = false;  // weighted, and owner residuals are folded in: takes the sum of weights first
  // What this rank encodes at each site; empty where nothing is kept.
  Range local = {};
  Range owned = {};
  std::vector<Range> summed = {};  // for its node
};

/// What executors are told of a call, beside memory.
struct ResolvedCall {
  HopCodecs codecs;
  bool weighted = false;
  ResidualUse residuals = {};
  bool preconditioned = false;  // what travels is divided by Task::preconditioner; residuals and results are not

  /// Inputs are scaled by their share of the weights before they travel, as the tensor's own dtype has no room for w x.
  [[nodiscard]] bool scales_first() const noexcept { return weighted && codecs.scales_first(); }
  /// Nothing is encoded before the sum of weights is known.
  [[nodiscard]] bool weights_first() const noexcept { return weighted && codecs.weights_first(residuals.folds_owner); }
};

struct Resolved {
  ResolvedCall call;
  Schedule schedule;
};

/// Error(unsupported) for a codec that has no values of the dtype; Error(internal) where a rank, root or segments do
/// not fit the group.
[[nodiscard]] Resolved resolve(const Request& request, const RankGroup& group);

/// Whether resolve() makes the call the transport's or library's own sum.
[[nodiscard]] bool is_native(const Request& request, const RankGroup& group);

/// Codecs that share one working type; where the tensor's dtype would give them two, they take f32.
/// `widened`: a 16-bit tensor travels as f32, since residuals are to arrive with it. `node`: of sums over a node, which
/// travel as f32 where the tensor has 16 bits: a part of a mean may be larger than the mean.
[[nodiscard]] HopCodecs hop_codecs(CodecSpec first, CodecSpec second, DType dtype, bool widened = false,
                                   std::optional<CodecSpec> node = std::nullopt);

}  // namespace gradwire::exchange
