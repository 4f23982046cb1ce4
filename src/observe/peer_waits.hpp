// Measures how long one thread of a rank waited for each other rank. It is told of waits and arrivals, and needs no
// clock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/median.hpp"
#include "observe/slow_ranks.hpp"

namespace gradwire::observe {

/// Seconds. A thread that returns from a wait later than that did not run meanwhile.
inline constexpr double kMuchLater = 50e-3;

class PeerWaits {
 public:
  PeerWaits(int rank, int world_size) : rank_(rank), peers_(static_cast<std::size_t>(world_size)) {}

  /// Says that the thread waited for `seconds`, of `asked` at most. A process that was stopped meanwhile comes back
  /// much later, for which its peers are not to blame.
  void waited(double seconds, double asked) noexcept { total_ += seconds - asked > kMuchLater ? asked : seconds; }
  /// The sum of all waits so far, which serves as a clock for arrivals.
  [[nodiscard]] double total() const noexcept { return total_; }

  /// Says that a frame of `peer`, which was missing since the moment `since`, has arrived: one of the peer's own
  /// values, or a result. Returns whether this rank waited for it. A wait for several frames at the same time counts
  /// once.
  enum class Frame : std::uint8_t { first, own, result };  // first frame of own values in a bucket, later ones, results
  bool came(int peer, double since, std::uint64_t bytes, Frame frame) noexcept {
    Peer& from = peers_[static_cast<std::size_t>(peer)];
    Sum& sum = frame == Frame::result ? from.indirect : from.direct;
    bytes_received_ += bytes;
    const double seconds = std::max(0.0, total_ - std::max(sum.counted, since));
    sum.seconds += seconds;
    sum.counted = total_;
    from.entry += frame == Frame::first ? seconds : 0;
    return total_ > since;
  }
  /// Says that a lane has its last frame, which came from rank `last`; below 0: no rank was waited for.
  void lane_ended(int last) noexcept {
    ++lanes_;
    if (last >= 0) {
      ++peers_[static_cast<std::size_t>(last)].lasts;
    }
  }

  /// Writes the measurements of `steps` steps to `seen`, and begins anew.
  void take(double steps, RankSeen& seen) {
    std::vector<double> streams;
    std::vector<double> results;
    std::vector<PeerWait> waits;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      if (static_cast<int>(i) != rank_) {
        streams.push_back((peer.direct.seconds - peer.entry) / steps);
        results.push_back(peer.indirect.seconds / steps);
        waits.push_back({static_cast<int>(i), peer.direct.seconds / steps, peer.entry / steps,
                         peer.indirect.seconds / steps,
                         lanes_ > 0 ? static_cast<double>(peer.lasts) / static_cast<double>(lanes_) : 0});
      }
      peer.direct.seconds = peer.indirect.seconds = peer.entry = 0;
      peer.lasts = 0;
    }
    if (lanes_ > 0) {  // without lanes there were no frames to tell apart
      const std::size_t told = std::min(kPeersTold, waits.size());
      std::partial_sort(
          waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(told), waits.end(),
          [](const PeerWait& a, const PeerWait& b) { return a.direct + a.indirect > b.direct + b.indirect; });
      std::copy_n(waits.begin(), told, seen.peers.begin());
      seen.typical_stream = lower_median(std::move(streams));
      seen.typical_indirect = lower_median(std::move(results));
    }
    seen.bytes_received = static_cast<double>(bytes_received_) / steps;
    seen.idle_seconds = (total_ - std::exchange(taken_, total_)) / steps;
    bytes_received_ = lanes_ = 0;
  }

 private:
  struct Sum {
    double seconds = 0;
    double counted = 0;  // the moment up to which it includes waits
  };
  struct Peer {
    Sum direct;
    Sum indirect;
    double entry = 0;
    std::uint64_t lasts = 0;
  };

  int rank_;
  std::vector<Peer> peers_;
  double total_ = 0;
  double taken_ = 0;  // total_ at the last take()
  std::uint64_t bytes_received_ = 0;
  std::uint64_t lanes_ = 0;
};

}  // namespace gradwire::observe
