// Collectives with codecs, without a session: one call, one result.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/link.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

struct CommunicatorOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // for any single wait; above 0; names the missing ranks
  std::optional<bool> checksum = {};                           // default: as the transport says
  /// For hierarchical: how many consecutive ranks share a node, the same on every rank. Default: as the transport says.
  std::optional<std::uint32_t> ranks_per_node = {};
  /// The link, where it is known; the same on every rank. It sets how much is in flight from the first call on, and
  /// `automatic` chooses by it. Default: the calls measure it while they run.
  std::optional<Link> link = {};
  /// Bytes of memory for the frames under way, beyond four chunks a shard; may differ between ranks.
  std::uint64_t in_flight_bytes = kDefaultInFlightBytes;
};

/// The residuals of a buffer that is reduced again and again: a lossy call keeps here what it dropped, and the next one
/// adds it (error feedback). Needs 4 bytes an element, and 4 more for each element that this rank encodes as its owner
/// or for its node; half of that as bf16, a quarter as int8. Each such buffer has a FeedbackBuffer of its own, which
/// may outlive communicators; it holds for one world size (an exact call empties it).
class FeedbackBuffer {
 public:
  /// `count` is the number of elements of the calls' larger buffer (input of a reduce-scatter, output of an
  /// all-gather). `dtype` is that of the residuals.
  explicit FeedbackBuffer(std::uint64_t count, ResidualDType dtype = ResidualDType::f32);
  FeedbackBuffer(FeedbackBuffer&&) noexcept;
  FeedbackBuffer& operator=(FeedbackBuffer&&) noexcept;
  ~FeedbackBuffer();

  [[nodiscard]] std::uint64_t count() const noexcept;
  /// Bytes of memory that it holds; 0 before the first lossy call.
  [[nodiscard]] std::uint64_t bytes() const;
  /// Drops all residuals.
  void clear();

 private:
  friend class Communicator;
  struct State;
  std::unique_ptr<State> state_;
};

/// The codec of a call, and whether the caller named it. It is written and read like a CodecSpec, and a default one is
/// exact as well.
class CallCodec : public CodecSpec {
 public:
  using CodecSpec::CodecSpec;
  constexpr CallCodec() noexcept = default;
  constexpr CallCodec(const CodecSpec& spec) noexcept : CodecSpec(spec) {}
  /// The default of CallOptions: a broadcast then sends exact values, every other call int8.
  [[nodiscard]] static CallCodec unnamed() {
    CallCodec codec("int8");
    codec.named_ = false;
    return codec;
  }

  [[nodiscard]] constexpr bool named() const noexcept { return named_; }

 private:
  bool named_ = true;
};

/// Options of one call. They must be equal on every rank. docs/reference/defaults.md compares these defaults with those
/// of sessions, policies and C.
struct CallOptions {
  CallCodec codec = CallCodec::unnamed();
  /// The algorithm of an all-reduce; the other calls have one each. `automatic` chooses anew for each size and codec;
  /// over device memory it is always two_shot. Name an algorithm where results must not depend on how ranks are placed
  /// on hosts.
  Algorithm algorithm = Algorithm::automatic;
  Reduction reduction = Reduction::sum;
  /// This rank's weight, such as its sample count, on every rank or on none. sum: sum of w x; mean: that / sum of w.
  std::optional<double> weight = std::nullopt;
  /// Bytes of a chunk on the wire. Default: kDefaultChunkBytes; over device memory a size that suits the world's size.
  std::optional<std::uint64_t> chunk_bytes = std::nullopt;
  /// Codec of the owner's encoding in a two_shot or hierarchical all-reduce. Default: `codec`; after topk the same with
  /// k times the world size, or int4 where that takes fewer bytes.
  std::optional<CodecSpec> second_hop = std::nullopt;
  /// Codec inside a node in a hierarchical all-reduce; `codec` is the one between nodes. Default: bf16; exact with
  /// codecs that lose nothing.
  std::optional<CodecSpec> intra_codec = std::nullopt;
  /// Error feedback: the buffer where calls keep what they drop, and whose content they add. Null on every rank or on
  /// none. Not owned.
  FeedbackBuffer* feedback = nullptr;
};

/// Blocking collectives over a transport. Every rank makes the same calls in the same order; one thread at a time.
/// Results are bit-identical on every rank. On any error the transport is aborted and the communicator is dead.
class Communicator {
 public:
  /// Error(invalid_argument) where ranks_per_node does not divide the world.
  explicit Communicator(std::shared_ptr<Transport> transport, CommunicatorOptions options = {});
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;
  [[nodiscard]] Transport& transport() const noexcept;
  /// The algorithm of the latest all_reduce; where `automatic` chose it, also why: "hierarchical: 2 nodes of 2 ranks".
  /// Empty before the first one.
  [[nodiscard]] std::string latest_algorithm() const;
  /// "2 nodes of 2 ranks"; where a hierarchical all-reduce would be made as a two_shot one, also why.
  [[nodiscard]] std::string tiers() const;

  /// Reduces `input` over all ranks into `output` (same count and dtype; may be the same memory, must not overlap
  /// otherwise). Any count, any world size.
  Statistics all_reduce(ConstView input, View output, const CallOptions& options = {});
  Statistics all_reduce(View in_place, const CallOptions& options = {}) {
    return all_reduce(in_place, in_place, options);
  }

  /// Reduces `input` and leaves segment r with rank r. `counts[r]` elements each, zero allowed, in order; their sum is
  /// input.count. The result is not encoded a second time.
  Statistics reduce_scatter(ConstView input, View output, std::span<const std::uint64_t> counts,
                            const CallOptions& options = {});

  /// Rank r contributes `counts[r]` elements; all receive all, in rank order. With a lossy codec the contributor's own
  /// segment is decoded from the same bytes as everyone's.
  Statistics all_gather(ConstView input, View output, std::span<const std::uint64_t> counts,
                        const CallOptions& options = {});

  /// Sends rank `root`'s `data` to everyone: exactly, unless `options` name a codec. With a lossy codec root's copy is
  /// decoded too.
  Statistics broadcast(View data, int root, const CallOptions& options = {});

  /// Returns once every rank has called it.
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire
