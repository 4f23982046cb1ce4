// Statistics of collectives: counted bytes, time by phase, ratio. Plain data; `add` merges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradwire {

/// Totals of collectives of one kind (one group, one call), of this rank alone: ranks differ. How to read a table of
/// them: docs/reference/statistics.md.
struct Statistics {
  std::uint64_t calls = 0;               // collectives: in a session one for each bucket and exchange
  std::uint64_t elements = 0;            // elements of the caller's tensors
  std::uint64_t bytes_in = 0;            // bytes of the caller's tensors, in their own dtype
  std::uint64_t bytes_sent = 0;          // bytes given to the transport: frames with their headers, of both hops
  std::uint64_t bytes_intra = 0;         // the share of bytes_sent, in bytes, that went to ranks of the same node
  std::uint64_t bytes_inter = 0;         // the share of bytes_sent, in bytes, that went to other nodes
  std::uint64_t bytes_uncompressed = 0;  // bytes that a perfect uncompressed algorithm sends, in the tensors' own dtype
  std::uint64_t frames_sent = 0;         // messages given to the transport, of one encoded chunk each
  std::uint64_t nonfinite_frames = 0;    // frames, received or made, with NaN or Inf in them
  double encode_seconds = 0;             // seconds of encoding, with the owner's summing before its own encoding
  double decode_seconds = 0;             // seconds of decoding what other ranks sent
  double wire_seconds = 0;               // seconds in which a call waited for the transport with nothing to compute
  double total_seconds = 0;              // seconds from the start to the end of each call, summed; calls may overlap
  double squared_error = -1;             // sum over elements of (result - exact)^2; -1 unless measured
  double squared_norm = -1;              // sum over elements of exact^2; -1 unless measured

  void add(const Statistics& other);
  /// bytes_uncompressed / bytes_sent; 1 when nothing was sent.
  [[nodiscard]] double ratio() const;
  /// sqrt(squared_error / squared_norm), or -1 unless measured.
  [[nodiscard]] double relative_error() const;
};

/// Bytes that a session over device memory holds there and in pinned host memory.
struct DeviceMemory {
  std::uint64_t bytes_in_use = 0;  // used by residuals and by buckets under way
  std::uint64_t peak_bytes = 0;    // the maximum of bytes_in_use
  std::uint64_t held_bytes = 0;    // taken from the device, in use or not
  std::uint64_t pinned_bytes = 0;  // host memory for staging
};

/// A change of codec that codec = "auto" made, for all buckets that changed alike.
struct CodecSwitch {
  std::uint64_t step = 0;  // the first step with the new codec
  std::string from;        // empty at the start; "dense": not compressed
  std::string to;
  std::uint64_t buckets = 0;
  std::string reason;
  std::string cause = {};  // "start", "faster", "quality" (for nothing), "guard" (encoding dropped too much)
};

/// The measured links of a job. Bandwidths are in one direction: of a whole node between nodes, of one rank inside a
/// node.
struct LinkEstimate {
  struct Tier {
    double latency_seconds = 0;
    double bytes_per_second = 0;
  };
  int ranks_per_node = 1;
  Tier inter;
  Tier intra;                      // measured where ranks_per_node is above 1
  double measured_in_seconds = 0;  // duration of the measurement at the start
};

/// The result of Session::batch_advice(); the same on every rank.
struct BatchAdvice {
  std::uint32_t accumulation = 1;     // micro-steps (backward passes) of a rank before each reduction
  double learning_rate_factor = 1;    // relative to a step of one micro-step
  double exposed_share = 0;           // share of a step in which no computation hid communication, as measured last
  std::optional<double> noise_scale;  // of the gradient, in micro-steps of one rank, as measured last; infinite where
                                      // noise hides the gradient; none: not (yet) measured
  std::uint64_t step = 0;             // the first step with this accumulation
  std::string reason;
};

/// How many steps after its gradients a result of sync = { async = true, ... } was delivered.
struct Lateness {
  std::uint64_t results = 0;  // one for each bucket and step
  std::uint64_t oldest = 0;   // the greatest lateness in steps; never above the staleness
  std::uint64_t steps = 0;    // sum of the lateness of all results, in steps
  /// The mean lateness in steps; 0 without results.
  [[nodiscard]] double mean() const {
    return results == 0 ? 0 : static_cast<double>(steps) / static_cast<double>(results);
  }
};

/// Bytes of the page pool, which has the payloads in host memory of all sessions of this process.
struct HostMemory {
  struct Use {
    std::string name;  // "frames", "residuals", "tables", "copies", "staging"
    std::uint64_t bytes_in_use = 0;
    std::uint64_t peak_bytes = 0;  // the maximum of bytes_in_use
  };
  std::uint64_t bytes_in_use = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t held_bytes = 0;  // taken from the system: in use, or free for the next request
  std::uint64_t limit_bytes = 0;
  double fragmentation = 0;  // the share of the free bytes outside the longest free run
  std::string pages;         // of the newest region: "transparent huge pages", "pages of hugetlbfs", "pages of 4 KiB"
  std::vector<Use> uses;
};

/// Where the rows of a session's table lie on this rank. What TableStatistics has as well means the same there.
struct RowTable {
  std::string name;
  std::uint64_t rows_held = 0;
  std::uint64_t rows_in_memory = 0;
  std::uint64_t rows_in_file = 0;
  std::uint64_t hits = 0;
  std::uint64_t reads = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t file_bytes = 0;
};

/// A session's statistics: one row a group (policy rule), and the totals over all and over compressed groups only.
struct SessionStatistics {
  struct Group {
    std::string name;   // "rule 2 (embed.*)", "default", "small"
    std::string codec;  // canonical spec; for codec = "auto" also the buckets of each choice: "auto: int8 3, dense 1"
    std::string algorithm;              // "hierarchical", or with numbers of buckets "hierarchical 3, one_shot 1"
    bool compressed = false;            // the codec is not `exact`
    std::uint64_t tensors = 0;          // tensors of the group
    Statistics totals;                  // of its buckets, since the session began or reset_statistics() was called
    std::string sync = "step";          // "every 8", "async, staleness 4"
    Lateness late = {};                 // of sync = { async = true, ... }
    std::string algorithm_reason = {};  // of algorithm = "auto": "hierarchical: 2 nodes of 2 ranks"; else empty
  };
  std::string transport;       // name, and "emulated ..." where a link is emulated
  int rank = 0;                // the rank that these are of
  int world_size = 1;          // number of ranks
  std::uint64_t steps = 0;     // steps that finish() ended
  double exposed_seconds = 0;  // seconds spent inside finish(), summed over the steps: communication not hidden
  double commit_seconds = 0;   // the share of it in which, over Processes, ranks agreed that all hold a step's results
  std::vector<Group> groups;   // those that have tensors
  std::uint64_t comparisons = 0;      // how often ranks compared their steps: for auto, [batch], slow ranks
  double comparison_seconds = 0;      // this rank's seconds for comparing, with measuring and deciding
  std::vector<CodecSwitch> switches;  // of codec = "auto", from the first choice on
  std::optional<DeviceMemory> device_memory = {};  // over device memory only
  std::optional<HostMemory> host_memory = {};      // only in statistics of this process's own session
  std::vector<RowTable> tables = {};               // the session's, in order of add_table, after the last step

  /// The totals over all groups.
  [[nodiscard]] Statistics all() const;
  /// The totals over groups whose codec is not `exact`.
  [[nodiscard]] Statistics compressed() const;
  /// A table for people, which explains its columns (docs/reference/statistics.md).
  [[nodiscard]] std::string to_text() const;
  /// One JSON object; keys as the members here, and `ratio`, `ratio_compressed`.
  [[nodiscard]] std::string to_json() const;
};

}  // namespace gradwire
