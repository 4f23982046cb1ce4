// From "reduce this" to a schedule and a task: the choices that every caller of a collective makes alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "codec/codec.hpp"
#include "collective/collectives.hpp"
#include "collective/tiers.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::collective {

/// The codec that travels: `exact` for dense, else as asked.
[[nodiscard]] codec::Codec codec_for(Algorithm algorithm, CodecSpec spec, DType dtype);

/// Codecs that share one working type; where the tensor's dtype would give them two, they take f32.
/// `widened`: a 16-bit tensor travels as f32, since residuals are to arrive with it. `node`: of sums over a node, which
/// travel as f32 where the tensor has 16 bits: a part of a mean may be larger than the mean.
[[nodiscard]] HopCodecs hop_codecs(CodecSpec first, CodecSpec second, DType dtype, bool widened = false,
                                   std::optional<CodecSpec> node = std::nullopt);

/// Below this, in bytes, dense uses the transport's own all-reduce where nothing was measured.
inline constexpr std::uint64_t kNativeBelowBytes = 64ULL << 10;
/// And from there up to this its blocking one, where it may: Open MPI's takes longer than two_shot above.
inline constexpr std::uint64_t kInCallBelowBytes = 24ULL << 20;

/// Whether dense is the transport's blocking all-reduce (Transport::all_reduce) where its ranks wait: it sums the
/// dtype, the message is of middle size, and all ranks share a node, where nothing uncompressed of ours is faster.
[[nodiscard]] bool dense_in_call(const Transport& transport, DType dtype, std::uint64_t count, const Tiers& tiers);

struct AllReduceOptions {
  bool weighted = false;
  bool folds_owner = false;  // see Shape
  std::uint64_t chunk_bytes = kDefaultChunkBytes;
  bool deterministic = false;
  std::uint64_t native_below = kNativeBelowBytes;
  bool asks = false;            // a native one is the blocking call where all ranks wait for it (Task::waits)
  bool compares_terms = false;  // a native one, which has no frames, compares Task::terms
  std::shared_ptr<const Tiers> tiers = nullptr;  // see Shape
};
/// The all-reduce schedule; `dense` becomes the transport's own where it has the dtype, the message is small and
/// `deterministic` does not forbid it.
[[nodiscard]] Schedule all_reduce_over(const Transport& transport, Algorithm algorithm, const HopCodecs& codecs,
                                       std::uint64_t count, const AllReduceOptions& options);

}  // namespace gradwire::collective
