// Which rank holds the others up, and why. Pure: numbers of all ranks in, names out; no clock, no lock. Clocks of ranks
// need not agree, because only durations that one rank saw count: who is waited for is late.
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
  late_compute,   // it hands its gradients in later than others
  slow_link_out,  // its frames come late to all, although it handed them in as early
  slow_link_in,   // all frames come late to it alone
  slow_encoding,  // it takes longer for each byte that it encodes, sums and decodes
  cores_shared,   // its threads wait for cores that others have
  paused,         // it did nothing at all for long: stopped, or swapped out
};
inline constexpr int kSlowCauses = static_cast<int>(SlowCause::paused) + 1;
/// "late_compute"
[[nodiscard]] std::string_view to_string(SlowCause cause) noexcept;

/// How a rank waited for one other. Seconds are of a step, with nothing else to do.
struct PeerWait {
  int rank = -1;        // none
  double direct = 0;    // while a frame of that rank's own values was missing
  double entry = 0;     // of that, while the first one of a bucket was: the rank had not entered it, or its link is far
  double indirect = 0;  // likewise of what that rank makes of all others' frames
  double last = 0;      // share of lanes whose last frame was that rank's, and had to be waited for
};
inline constexpr std::size_t kPeersTold = 4;

/// What one rank saw of an interval. Seconds and bytes are of a step, the mean.
struct RankSeen {
  double steps = 0;  // of the interval
  double step_seconds = 0;
  double wait_seconds = 0;            // exposed: inside finish()
  double compute_seconds = 0;         // outside of it: what the job does before its last gradient is ready
  double bytes_in = 0;                // of the tensors
  double codec_seconds_per_byte = 0;  // encoding, summing and decoding, over bytes_in
  double bytes_sent = 0;
  double bytes_received = 0;
  double delayed_seconds = 0;  // its threads could run, and had no core
  double cpu_seconds = 0;      // of its process
  double idle_seconds = 0;     // its communication waited for others; inside finish() and behind computing
  double longest_gap = 0;      // of the whole interval, in which it did nothing; not of a step
  // Of the peer in the middle: PeerWait::direct without `entry`, and `indirect`.
  double typical_stream = 0;
  double typical_indirect = 0;
  std::array<PeerWait, kPeersTold> peers = {};  // those that it waited for most
};

/// The lower of two in the middle: one that is out of line, and half of two, do not move it. 0 of none.
[[nodiscard]] double middle(std::vector<double> values);

struct Diagnosis {
  double wait_seconds = 0;   // of a step, in which others wait for this rank
  double share = 0;          // of a step; what all ranks have in common left out
  double last_arrivals = 0;  // share of lanes in which others had this rank's frame last
  SlowCause cause = SlowCause::none;
  double own = 0;     // the figure that shows the cause, of this rank and of the one in the middle: seconds of a step,
  double others = 0;  // of `paused` those of the gap
};

inline constexpr double kSlowShare = 0.1;

/// One a rank. A rank is slow, and has a cause, where others wait for it for more than `share` of a step.
[[nodiscard]] std::vector<Diagnosis> diagnose(std::span<const RankSeen> ranks, double share = kSlowShare);

struct SlowWatchOptions {
  double share = kSlowShare;
  std::size_t of = 3;           // a rank turns slow when it was so in `needed` of that many intervals;
  std::size_t needed = 2;       // one is enough where it was paused
  std::size_t doubtful_of = 6;  // links and cores have moments: of a busy machine now this rank is slow, now that one
  std::size_t doubtful_needed = 5;
  std::size_t well = 3;    // and well after that many without a sign
  double leaves_at = 0.7;  // of `share`: above it, it stays as it is
};

/// What changed of a rank.
struct SlowChange {
  int rank = 0;
  bool slow = false;
  Diagnosis latest = {};
  SlowCause cause = SlowCause::none;  // of a rank that is well again: what it was
};

/// Turns diagnoses of intervals into few changes. All ranks that feed it alike hold the same.
class SlowWatch {
 public:
  explicit SlowWatch(SlowWatchOptions options = {}) : options_(options) {}

  std::vector<SlowChange> update(std::span<const Diagnosis> ranks);
  /// Of a rank that is slow; none of others.
  [[nodiscard]] SlowCause cause(int rank) const noexcept;

 private:
  struct Rank {
    std::deque<SlowCause> signs;  // of the latest intervals
    std::size_t calm = 0;         // intervals in a row below the lower edge
    SlowCause cause = SlowCause::none;
  };
  [[nodiscard]] SlowCause sign_of(const Rank& rank) const;

  SlowWatchOptions options_;
  std::vector<Rank> ranks_;
};

/// How many times as long a step takes as it would if nobody waited for this rank.
[[nodiscard]] double slowdown(const Diagnosis& found) noexcept;

/// Which rank the others are better off without. Fed as SlowWatch is, and after it.
class ExpelWatch {
 public:
  static constexpr std::size_t kIntervals = 4;

  /// `slower_than`: the slowdown that is too much, above 1.
  explicit ExpelWatch(double slower_than) : slower_than_(slower_than) {}

  /// A rank that is slow, and in each of the latest kIntervals intervals was too slow, for a cause of its own; the
  /// slowest of several; -1: none.
  [[nodiscard]] int update(std::span<const Diagnosis> ranks, const SlowWatch& slow);

 private:
  double slower_than_;
  std::vector<std::size_t> intervals_;  // by rank, in a row
};

/// "rank 2 is slow (late compute): other ranks wait 20.1 ms of a step of 61 ms (33%) for it; it computes 52 ms, others
/// 31.9 ms"
[[nodiscard]] std::string to_text(const SlowChange& change, double step_seconds);
/// What a rank saw and what was made of it, for whoever wonders: "step 61 ms, computes 20 ms, waits ..."
[[nodiscard]] std::string to_text(const RankSeen& seen, const Diagnosis& found);

}  // namespace gradwire::observe
