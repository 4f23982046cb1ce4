// The policy: which codec and algorithm each tensor gets. Read from TOML; see docs/reference/policy.md for every key.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

enum class ErrorFeedback : std::uint8_t { automatic, on, off };

/// How the learning rate follows the batch.
enum class BatchScaling : std::uint8_t {
  linear,       // by the same factor (SGD: Goyal et al., 2017)
  square_root,  // for optimizers that divide by the root of the second moment, such as Adam (Malladi et al., 2022)
};

/// Another codec for the first steps, which holds for all steps below `until_step`, counted from 0.
struct Warmup {
  std::uint64_t until_step = 0;
  CodecSpec codec;
  friend bool operator==(const Warmup&, const Warmup&) = default;
};

/// When the tensors of a rule are synchronised (docs/explanation/sync-modes.md).
struct Sync {
  enum class Mode : std::uint8_t {
    step,   // every gradient is reduced at every step
    every,  // local steps; parameters are averaged every few steps (local SGD: Stich, 2019)
    async,  // gradients are reduced in the background, results arrive some steps later
    rows,   // an embedding table of which only touched rows travel: a gradwire::Table, not a tensor of a session
  };
  /// The change since the last synchronisation is treated as a gradient by SGD with Nesterov momentum (DiLoCo:
  /// Douillard et al., 2023); it travels by the rule's codec. None: parameters and optimizer state are averaged
  /// exactly.
  struct Outer {
    double learning_rate = 0.7;  // above 0
    double momentum = 0.9;       // from 0 to below 1
    friend bool operator==(const Outer&, const Outer&) = default;
  };
  Mode mode = Mode::step;
  std::uint32_t every = 1;   // steps between two synchronisations; 1: as `step`
  std::uint32_t offset = 0;  // steps by which synchronisations come earlier, below `every`, so that groups take turns
  bool stagger = false;      // whether the buckets of the group take turns too
  std::uint32_t staleness = 0;  // async, rows: steps until a result arrives, or by which a row may be older
  std::uint64_t from_step = 0;  // earlier steps use the mode `step`
  std::optional<Outer> outer = std::nullopt;
  std::string store = {};    // rows: TableOptions::store
  std::uint64_t memory = 0;  // rows: TableOptions::memory, bytes
  friend bool operator==(const Sync&, const Sync&) = default;
};

/// Which sums that a job asks NCCL for the drop-in may compress (docs/how-to/drop-in-nccl.md).
enum class Roles : std::uint8_t {
  gradients,  // those that it takes for gradients
  all,        // all, at once
};

/// How the residuals of error feedback are kept over host memory (docs/explanation/memory.md).
struct Residuals {
  ResidualDType dtype = ResidualDType::f32;
  std::string store = {};    // "file:DIR": what exceeds `memory` lies in a file there; empty: all of it in memory
  std::uint64_t memory = 0;  // bytes that stay in memory where there is a file
  friend bool operator==(const Residuals&, const Residuals&) = default;
};

/// The settings of one rule, or of the defaults.
struct TensorPolicy {
  CodecSpec codec = "int8";
  Algorithm algorithm = Algorithm::automatic;
  /// Keep what encoding dropped and add it to the next gradient. automatic: with topk, and from 4 bits an element down.
  ErrorFeedback error_feedback = ErrorFeedback::automatic;
  /// The factor applied to the residual before it is added: residual' = (value + decay x residual) - decoded
  /// (SparseLoCo: Sarfi et al., 2025). Above 0, at most 1, which loses nothing.
  double decay = 1;
  /// Codec of the owner's encoding in two_shot and hierarchical; `automatic` chooses among these then. Default:
  /// `codec`; after topk the same with k times the world size (hierarchical: the number of nodes), or int4 where that
  /// takes fewer bytes.
  std::optional<CodecSpec> second_hop = std::nullopt;
  std::vector<Warmup> warmup = {};  // ascending steps
  /// codec = "auto": the codecs that may be chosen at run time, besides not compressing, in order of quality; `codec`
  /// is the first of them. Empty: always `codec`.
  std::vector<CodecSpec> allow = {};
  Sync sync = {};
  Residuals residuals = {};
  /// For drop-ins: a class of calls whose relative error (norm of the difference over norm of the exact sum) exceeds
  /// this bound passes uncompressed from then on. Above 0. None: no bound. Sessions refuse it.
  std::optional<double> max_error = std::nullopt;
  /// For calls of NCCL. None: `all` in a rule that names a communicator, a size or a dtype, else `gradients`.
  std::optional<Roles> roles = std::nullopt;
  [[nodiscard]] bool is_auto() const noexcept { return !allow.empty(); }
  friend bool operator==(const TensorPolicy&, const TensorPolicy&) = default;
};

/// A range of calls in a step, counted from 0; both ends belong to it.
struct OrderRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  friend bool operator==(const OrderRange&, const OrderRange&) = default;
};

/// Conditions of a rule, of which all that are set must hold. `match` is a glob over tensor names: * ? [abc] [a-z]
/// [!abc].
struct RuleMatch {
  std::optional<std::string> glob = std::nullopt;
  std::optional<std::uint64_t> min_bytes = std::nullopt,
                               max_bytes = std::nullopt;  // sizes of the tensor in its own dtype, both inclusive
  std::optional<std::uint32_t> ndim = std::nullopt;
  std::optional<DType> dtype = std::nullopt;
  std::optional<OrderRange> order = std::nullopt;  // of a call in a drop-in; a session's tensors have none
  std::optional<std::uint32_t> communicator_size = std::nullopt;
  std::optional<std::string> communicator_name = std::nullopt;  // a glob over the names of NCCL's communicators
  friend bool operator==(const RuleMatch&, const RuleMatch&) = default;
};

/// The properties of a tensor by which its rule is found. An empty name matches no rule with `match`, and an absent
/// number matches no rule that asks for it.
struct TensorInfo {
  std::string name;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  std::uint32_t ndim = 1;
  std::optional<std::uint64_t> order = std::nullopt;              // calls before it in its step
  std::optional<std::uint32_t> communicator_size = std::nullopt;  // ranks that reduce it
  std::string communicator_name = {};                             // of a call of NCCL; empty: none
  std::uint32_t parameters = 0;  // arrays registered beside the gradient: the parameter and its optimizer state
  bool scaled = false;           // added with a scale: TensorOptions::scale of a session
};

class Policy {
 public:
  struct Rule {
    RuleMatch match = {};
    TensorPolicy policy = {};
    int line = 0;  // in the policy file; 0 when made in code
  };
  /// Settings for tensors that no rule matches and that are smaller than `below` bytes; they are fused with each other
  /// only.
  struct Small {
    std::uint64_t below = 64ULL << 10;
    CodecSpec codec = "bf16";
    friend bool operator==(const Small&, const Small&) = default;
  };

  /// Settings for the algorithm hierarchical, which knows two tiers of links: inside nodes and between them.
  struct Tiers {
    /// How many consecutive ranks share a node. Default: as the transport says.
    std::optional<std::uint32_t> ranks_per_node = std::nullopt;
    /// Codec inside a node; `codec` is the one between nodes. Default: bf16. Where `codec` is exact, so is this. In a
    /// session over NCCL, which sums inside nodes itself: exact, the default there, or bf16.
    std::optional<CodecSpec> intra_codec = std::nullopt;
    friend bool operator==(const Tiers&, const Tiers&) = default;
  };

  /// The default policy: int8, bf16 for small tensors, buckets of 32 MiB.
  Policy();
  /// A policy with one codec for every tensor, small ones too.
  [[nodiscard]] static Policy uniform(CodecSpec codec, Algorithm algorithm = Algorithm::automatic);
  /// A policy with codec = "auto": every tensor, small ones too, travels uncompressed or with one of these codecs,
  /// given in order of quality, whichever is fastest by measurement. Error(invalid_argument) for an empty list, or one
  /// out of order.
  [[nodiscard]] static Policy automatic(const std::vector<CodecSpec>& allow = {"bf16", "int8"});
  /// Reads a TOML file. Error(invalid_argument) that says "FILE:LINE:COLUMN: what is wrong; what to write instead". A
  /// policy that parses may still ask a session or a drop-in for what it cannot do: docs/reference/support.md.
  [[nodiscard]] static Policy load(const std::filesystem::path& file);
  /// The same from text; `source` stands for the file name in messages.
  [[nodiscard]] static Policy parse(std::string_view text, const std::string& source = "policy");

  /// How readily codec = "auto" changes its choice.
  struct AutoOptions {
    double gain = 0.05;         // share of a step that a change must save
    std::uint64_t dwell = 20;   // least number of steps between two changes
    std::uint32_t window = 15;  // number of steps whose median counts
    double cost = 5e-4;         // share of the time that ranks may spend comparing their measurements
    friend bool operator==(const AutoOptions&, const AutoOptions&) = default;
  };

  /// Limits for Session::batch_advice().
  struct Batch {
    double target_exposed = 0.1;         // the share of a step that communication may add to it; above 0, below 1
    std::uint32_t min_accumulation = 1;  // least number of micro-steps of a rank before each reduction
    std::uint32_t max_accumulation = 8;
    BatchScaling scaling = BatchScaling::linear;
    friend bool operator==(const Batch&, const Batch&) = default;
  };

  /// How a job goes on when ranks end; for sessions over gradwire::Processes.
  struct Elastic {
    std::chrono::milliseconds suspect{5000};  // time without a sign of life after which a rank is left out
    std::uint32_t min_ranks = 1;              // the job ends with fewer ranks
    std::uint32_t replicate = 0;    // steps between two copies of a rank's residuals to another rank; 0: no copies
    bool replicate_exact = false;   // copies are fp32; otherwise rounded to bf16
    std::uint32_t spares = 0;       // number of last processes that wait, and take the places of ranks that end
    double expel_slower_than = 0;   // a rank that makes steps take so many times as long must leave; 0: none must
    bool trust_resets = false;      // a connection that ends or is reset counts as the end of its process
    bool replicate_packed = false;  // copies of residuals are packed by libzstd, without a change to their values
    friend bool operator==(const Elastic&, const Elastic&) = default;
  };

  /// What kernels and messages on a device may take from the job's own kernels.
  struct Device {
    /// Most blocks of 256 threads of each kernel; none: as many as its work has parts.
    std::optional<std::uint32_t> blocks = std::nullopt;
    bool high_priority = true;  // their blocks that wait start before those of the job
    /// Buckets below so many bytes, in their own dtype, are made together with the next ones until they have as many;
    /// 0: each by itself.
    std::uint64_t join_bytes = 0;
    friend bool operator==(const Device&, const Device&) = default;
  };

  /// Limits of the memory that gradwire takes, and how it keeps host memory; see docs/explanation/memory.md.
  struct Memory {
    enum class HugePages : std::uint8_t { madvise, hugetlbfs, off };
    /// Bytes of the residuals that a drop-in keeps on a device for one communicator.
    std::uint64_t device_residuals = 2ULL << 30;
    /// Whether a rank that is bound to a part of a host with several memory nodes keeps its buffers on the nearest one,
    /// and its progress thread on the last of its cores.
    bool bind = true;

    // The following are those of the page pool of host memory, which all sessions of a process share: the policy of the
    // session that begins last counts.
    /// Most bytes that it takes from the system; none: what cgroup and machine leave to each rank of the host.
    std::optional<std::uint64_t> limit = std::nullopt;
    HugePages huge_pages = HugePages::madvise;
    bool merges_lazily = true;                    // freed blocks are joined only when a request needs it
    std::uint64_t trim_above = 64ULL << 20;       // free bytes that it keeps
    std::chrono::milliseconds trim_after{10000};  // other free bytes go back after so long without use
    double compact_free = 0.6;           // compacts if a request finds no run although more than this share is free,
    std::uint32_t compact_failures = 3;  // or after so many refused requests in a row,
    std::chrono::milliseconds compact_every{30000};  // or if a look, every so often, finds too much free
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  /// The key by which a session encrypts what it sends, and how its memory is kept; see
  /// docs/explanation/security-model.md. What a session of a process asks of memory holds for the whole process.
  struct Security {
    /// "file:PATH", as GRADWIRE_KEY, which counts where it is set; empty: no key. The path may differ between ranks,
    /// the key may not.
    std::string key = {};
    /// Keeps keys, and host memory for residuals, frames and rows of tables, out of swap. Where the system does not
    /// allow it, the session ends with an error that names the limit.
    bool lock_memory = false;
    /// Leaves host memory for residuals, frames and rows of tables out of core dumps; keys always are.
    bool no_dump = false;
    friend bool operator==(const Security&, const Security&) = default;
  };

  static constexpr std::uint64_t kFloor = 64ULL << 10;
  static constexpr std::uint64_t kAutomaticFloor = 4ULL << 10;  // measuring finds and passes calls that do not pay

  std::string source = "built-in";
  TensorPolicy defaults;
  std::optional<Small> small;  // none: small tensors are treated like others
  std::vector<Rule> rules;
  Tiers tiers;
  std::uint64_t bucket_bytes = 32ULL << 20;  // uncompressed bytes, in fp32; 0: the cost model chooses for `link`
  std::optional<std::uint64_t> chunk_bytes = std::nullopt;  // as CallOptions::chunk_bytes
  std::uint64_t in_flight_bytes =
      kDefaultInFlightBytes;     // memory for frames under way; background reductions have as much again
  std::uint64_t floor = kFloor;  // the drop-in passes calls of fewer bytes through; sessions ignore it
  /// The link, where it is known: it sets the chunks in flight from the start, and choosing a codec needs no
  /// measurement.
  std::optional<Link> link = std::nullopt;
  AutoOptions auto_options = {};
  std::optional<Batch> batch = std::nullopt;  // limits of the advice on the batch; none: no advice
  std::optional<Elastic> elastic = std::nullopt;
  Device device = {};
  Memory memory = {};
  bool save_packed = false;  // save() and checkpoint() pack values by libzstd, bit by bit the same
  Security security = {};
  bool deterministic = false;  // no native sums, no choice by measurement
  bool strict = false;         // a rule that matched no tensor, or that a session ignores, is an error
};

}  // namespace gradwire
