// Finds the rank that holds the others up, and why. The functions are pure: they turn numbers of all ranks into names,
// without clock or lock. Clocks of ranks need not agree, because only durations that one rank measured count: a rank
// for which others wait is late.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::observe {

enum class SlowCause : std::uint8_t {
  none,
  late_compute,   // its gradients are ready later than those of others
  slow_link_out,  // its frames arrive late everywhere, although its gradients are ready as early
  slow_link_in,   // all frames arrive late at this rank only
  slow_encoding,  // it needs longer for each byte that it encodes, sums and decodes
  cores_shared,   // its threads wait for cores that other threads use
  paused,         // it did nothing at all for long: stopped, or swapped out
};
inline constexpr int kSlowCauses = static_cast<int>(SlowCause::paused) + 1;
/// "late_compute"
[[nodiscard]] std::string_view to_string(SlowCause cause) noexcept;

/// How a rank waited for one other rank. Seconds are those of a step in which it had nothing else to do.
struct PeerWait {
  int rank = -1;      // -1: none
  double direct = 0;  // while a frame of that rank's own values was missing
  double entry = 0;   // the part of it for the first frame of a bucket: the rank had not begun, or its latency is high
  double indirect = 0;  // while a result of that rank was missing
  double last = 0;      // share of lanes whose last frame came from that rank, and had to be waited for
};
inline constexpr std::size_t kPeersTold = 4;

/// One rank's measurements of an interval. Seconds and bytes are means over its steps.
struct RankSeen {
  double steps = 0;  // number of steps of the interval
  double step_seconds = 0;
  double wait_seconds = 0;            // exposed: inside finish()
  double compute_seconds = 0;         // outside finish(), until the last gradient is ready
  double bytes_in = 0;                // bytes of the tensors
  double codec_seconds_per_byte = 0;  // time of encoding, summing and decoding, over bytes_in
  double bytes_sent = 0;
  double bytes_received = 0;
  double delayed_seconds = 0;  // its threads could run, but had no core
  double cpu_seconds = 0;      // CPU time of its process
  double idle_seconds = 0;     // its communication waited for others, inside finish() and behind computing
  double longest_gap = 0;      // longest time of the whole interval in which it did nothing; not a mean
  // For the median peer: PeerWait::direct without `entry`, and `indirect`.
  double typical_stream = 0;
  double typical_indirect = 0;
  std::array<PeerWait, kPeersTold> peers = {};  // the peers for which it waited most
};

struct Diagnosis {
  double wait_seconds = 0;   // time of a step in which others wait for this rank
  double share = 0;          // share of a step, without the wait that all ranks have in common
  double last_arrivals = 0;  // share of lanes in which this rank's frame arrived last at others
  SlowCause cause = SlowCause::none;
  double own = 0;     // this rank's figure that shows the cause, in seconds of a step; for `paused` of the gap
  double others = 0;  // the same figure of the median rank
};

inline constexpr double kSlowShare = 0.1;

/// A diagnosis for each rank. A rank is slow, and may have a cause, where others wait for it for more than `share` of a
/// step.
[[nodiscard]] std::vector<Diagnosis> diagnose(std::span<const RankSeen> ranks, double share = kSlowShare);

struct SlowWatchOptions {
  double share = kSlowShare;
  std::size_t of = 3;           // a rank counts as slow when it was slow in `needed` of so many intervals;
  std::size_t needed = 2;       // one interval is enough where it was paused
  std::size_t doubtful_of = 6;  // the number for links and cores, which fluctuate on a busy machine
  std::size_t doubtful_needed = 5;
  std::size_t well = 3;    // it counts as well after so many intervals without a sign
  double leaves_at = 0.7;  // above this multiple of `share` it stays slow
};

/// A change of one rank's state.
struct SlowChange {
  int rank = 0;
  bool slow = false;
  Diagnosis latest = {};
  SlowCause cause = SlowCause::none;  // for a rank that is well again: the former cause
};

/// Turns diagnoses of intervals into few changes. Ranks that give it the same diagnoses get the same changes.
class SlowWatch {
 public:
  explicit SlowWatch(SlowWatchOptions options = {}) : options_(options) {}

  std::vector<SlowChange> update(std::span<const Diagnosis> ranks);
  /// The cause for a slow rank; none for others.
  [[nodiscard]] SlowCause cause(int rank) const noexcept;

 private:
  struct Rank {
    std::deque<SlowCause> signs;  // causes of the latest intervals
    std::size_t calm = 0;         // intervals in a row below the lower edge
    SlowCause cause = SlowCause::none;
  };
  [[nodiscard]] SlowCause sign_of(const Rank& rank) const;

  SlowWatchOptions options_;
  std::vector<Rank> ranks_;
};

/// How many times as long a step takes as it would if no rank waited for this one.
[[nodiscard]] double slowdown(const Diagnosis& found) noexcept;

/// Finds the rank without which the others are faster. It gets the same diagnoses as SlowWatch, after it.
class ExpelWatch {
 public:
  static constexpr std::size_t kIntervals = 4;

  /// `slower_than`: the slowdown, above 1, that is too much.
  explicit ExpelWatch(double slower_than) : slower_than_(slower_than) {}

  /// A slow rank that was too slow in each of the latest kIntervals intervals, for a cause of its own; the slowest of
  /// several; -1: none.
  [[nodiscard]] int update(std::span<const Diagnosis> ranks, const SlowWatch& slow);

 private:
  double slower_than_;
  std::vector<std::size_t> intervals_;  // by rank: number of consecutive intervals in which it was too slow
};

/// "rank 2 is slow (late compute): other ranks wait 20.1 ms of a step of 61 ms (33%) for it; it computes 52 ms, others
/// 31.9 ms"
[[nodiscard]] std::string to_text(const SlowChange& change, double step_seconds);
/// A rank's measurements and the diagnosis, for debugging: "step 61 ms, computes 20 ms, waits ..."
[[nodiscard]] std::string to_text(const RankSeen& seen, const Diagnosis& found);

}  // namespace gradwire::observe
