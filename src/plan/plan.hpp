// The plan: what every tensor resolved to under a policy, and the buckets that travel. It is a pure function of the
// policy, the tensors in order of add and the world size, so every rank makes the same one; describe() lets them check
// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/residuals/bucket_residuals.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/reduction.hpp"
#include "policy/stage.hpp"

namespace gradwire::plan {

/// Options, besides policy and tensors, on which ranks must agree.
struct PlanOptions {
  int world_size = 1;
  Reduction reduction = Reduction::mean;
  bool checksum = true;                   // whether frames carry a CRC
  std::vector<std::uint32_t> nodes = {};  // see Transport::nodes; the policy may say otherwise
  bool knows_tiers = true;                // whether the executor of the plan can run hierarchical
  bool packs_frames = true;               // whether it can pack frames: over host memory
  bool node_sums = false;                 // whether a library, as NCCL, then sums inside nodes, in its own order
  bool undoable = false;                  // whether the session can undo a step; ranks need not agree on it
  bool sealed = false;                    // whether frames are encrypted on their way, for the forecast of memory
};

/// The first bucket of each group and dtype is cut at this many bytes (where bucket_bytes is more), so that the first
/// bytes leave early in the backward pass.
inline constexpr std::uint64_t kFirstBucketBytes = 1ULL << 20;

struct TensorPlan {
  TensorInfo info;
  TensorPolicy policy;       // resolved; codec `exact` where the algorithm is dense; the bucket's algorithm
  std::size_t group = 0;     // index into Plan::groups
  std::size_t bucket = 0;    // index into Plan::buckets
  std::uint64_t offset = 0;  // elements before it in the bucket
  std::string why;           // `rule 2 at policy.toml:14 matched *.bias`, `default`, `small: ...`
};

/// The tensors that one rule matched, or that no rule matched.
struct Group {
  std::string name;     // "rule 2 (embed.*)", "default", "small"
  TensorPolicy policy;  // its algorithm may be automatic
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
};

/// Tensors of one group and dtype that travel as one sequence of elements.
struct Bucket {
  using Part = exchange::BucketPart;
  std::uint32_t id = 0;  // its index, in the agreed order in which buckets start
  std::size_t group = 0;
  DType dtype = DType::f32;
  CodecSpec codec;                            // after any warm-up
  std::vector<policy::Stage> stages;          // codecs by step
  std::vector<policy::Level> levels;          // codec = "auto": the levels to choose from; otherwise empty
  Algorithm algorithm = Algorithm::two_shot;  // never automatic
  std::string why = {};                       // where the policy says automatic: the reason; otherwise empty
  Sync sync;
  std::uint32_t sync_offset = 0;  // for `every`: Sync::offset, plus the bucket's turn where they are staggered
  std::uint32_t parameters = 0;   // for `every`: number of arrays registered beside each gradient
  double decay = 1;               // factor of residuals from one exchange to the next
  bool preconditioned = false;    // its tensors have scales, by which lossy codecs see them
  std::vector<Part> parts;        // in reverse order of add
  std::uint64_t count = 0;        // elements of all parts
};

struct Plan {
  PlanOptions options;
  std::shared_ptr<const exchange::Tiers> tiers;
  std::uint64_t bucket_bytes = 0;
  std::optional<std::uint64_t> chunk_bytes = std::nullopt;  // the policy's
  std::uint64_t fitting_chunk_bytes = kDefaultChunkBytes;   // used over host memory where the policy has none
  [[nodiscard]] std::uint64_t host_chunk_bytes() const noexcept { return chunk_bytes.value_or(fitting_chunk_bytes); }
  std::uint64_t join_bytes = 0;                           // over device memory: see Policy::Device
  std::uint64_t in_flight_bytes = kDefaultInFlightBytes;  // memory of frames; may differ between ranks
  // codec = "auto": the last level for which all ranks have host memory, as they have agreed.
  std::size_t most_level = std::numeric_limits<std::size_t>::max();
  bool deterministic = false;
  Policy::AutoOptions auto_options;  // for the choice of codecs, and for the advice on the batch
  std::optional<Link> link;          // given by the policy, so not measured
  std::optional<Policy::Batch> batch;
  Policy::Elastic elastic;          // for the memory of copies of residuals
  std::vector<TensorPlan> tensors;  // in order of add
  std::vector<Group> groups;        // rules in order of the file, then default, then small; none is empty
  std::vector<Bucket> buckets;      // in the order in which they start
  std::vector<std::string> tables;  // lines for describe() about the session's tables
  std::vector<std::string> warnings;
  std::vector<std::string> notes;

  /// Returns how the store of a rank's residuals keeps them.
  [[nodiscard]] exchange::ResidualForm residual_form(int rank) const;
  /// Returns whether a library sums the bucket inside nodes.
  [[nodiscard]] bool by_library(const Bucket& bucket) const noexcept {
    return options.node_sums && bucket.algorithm == Algorithm::hierarchical;
  }
  /// Returns whether the codec of any bucket is chosen at run time.
  [[nodiscard]] bool is_auto() const noexcept;
  /// Returns whether any group has another sync mode than `step`.
  [[nodiscard]] bool has_modes() const noexcept;
  /// Returns the algorithms of a group's buckets: "hierarchical", "hierarchical 3, one_shot 1".
  [[nodiscard]] std::string algorithms(std::size_t group) const;
  /// Returns "hierarchical: 2 nodes of 2 ranks, one_shot: latency rules"; empty where the policy names the algorithm.
  [[nodiscard]] std::string why_algorithms(std::size_t group) const;
  /// Returns the canonical text of everything that ranks must agree on, one item a line; equal plans give equal texts.
  [[nodiscard]] std::string describe() const;
  /// Returns 16 hex digits over describe().
  [[nodiscard]] std::string fingerprint() const;
  /// Returns tables for people: tensors and why, buckets and their sizes, warnings, notes.
  [[nodiscard]] std::string explain() const;
};

/// Throws Error(invalid_argument) for a bad rule, and under a strict policy for a rule that matched no tensor or that
/// sessions ignore; Error(unsupported) where a codec does not support a tensor's dtype.
[[nodiscard]] Plan make_plan(const Policy& policy, const std::vector<TensorInfo>& tensors, const PlanOptions& options);

/// Returns the place of residuals that do not fit into memory, or none if all of them stay in memory.
[[nodiscard]] std::optional<exchange::ResidualPlace> place_of(const Residuals& residuals);

/// Returns the fingerprint of any text, 16 hex digits.
[[nodiscard]] std::string fingerprint_of(const std::string& text);

/// Returns for two texts of describe() a message that names the first thing in which the ranks differ, without the
/// settings that they share, and the fix; empty when the texts are equal.
[[nodiscard]] std::string first_difference(const std::string& mine, int my_rank, const std::string& theirs,
                                           int their_rank);
/// Does the same for processes with these names.
[[nodiscard]] std::string first_difference(const std::string& mine, const std::string& my_name,
                                           const std::string& theirs, const std::string& their_name);

}  // namespace gradwire::plan
