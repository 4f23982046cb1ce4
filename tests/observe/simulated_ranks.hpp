// Simulates a job of ranks that reduce one bucket per step by two_shot, to compute what each rank would have seen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "observe/peer_waits.hpp"
#include "observe/slow_ranks.hpp"

namespace gradwire::observe::test {

struct SimulatedRank {
  double compute = 20e-3;      // seconds per step
  double jitter = 0.03;        // standard deviation, as a share of `compute`
  double encode = 0.3e-3;      // seconds per lane
  double out = 1e9, in = 1e9;  // bytes per second
  double delayed = 0;          // seconds per step without a core, in which the rank would compute
  double pause = 0;            // seconds, once per interval
  double lost = 0;             // seconds per step without a core on average, in pieces of some ms, during any work
};

class SimulatedJob {
 public:
  SimulatedJob(std::vector<SimulatedRank> ranks, unsigned seed)
      : ranks_(std::move(ranks)), random_(seed), begun_(ranks_.size(), 0.0), lanes_(ranks_.size() > 16 ? 2 : 8) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      waits_.emplace_back(static_cast<int>(r), static_cast<int>(ranks_.size()));
    }
    step({});  // lets ranks find their places
  }

  std::vector<SimulatedRank>& ranks() { return ranks_; }

  /// Plays an interval of steps.
  std::vector<RankSeen> run(int steps) {
    std::vector<RankSeen> seen(ranks_.size());
    for (std::size_t r = 0; r < seen.size(); ++r) {
      waits_[r].take(1, seen[r]);
      seen[r] = {};
    }
    for (int i = 0; i < steps; ++i) {
      step({&seen, i == steps / 2});
    }
    for (std::size_t r = 0; r < seen.size(); ++r) {
      RankSeen& s = seen[r];
      s.steps = steps;
      for (double* sum :
           {&s.step_seconds, &s.wait_seconds, &s.compute_seconds, &s.delayed_seconds, &s.codec_seconds_per_byte}) {
        *sum /= steps;
      }
      s.bytes_in = 4 * kFrame * static_cast<double>(lanes_ * seen.size());
      s.codec_seconds_per_byte /= s.bytes_in;
      waits_[r].take(steps, s);
    }
    return seen;
  }

 private:
  static constexpr double kFrame = 56 << 10;
  static constexpr double kPiece = 3e-3;  // a turn of another program
  struct Look {
    std::vector<RankSeen>* seen = nullptr;
    bool pauses = false;
  };
  struct Frame {
    double time;  // when it may leave; later, when it has left or arrived
    std::size_t from, to, lane;
  };

  // Time without a core.
  struct Lost {
    double computing = 0, summing = 0, looking = 0;
    double from = 0;  // start, as a share of the work during it
  };
  Lost lose(double mean) {
    Lost lost;
    if (mean > 0) {
      std::poisson_distribution<int> pieces(mean / kPiece);
      std::uniform_real_distribution<double> uniform;
      for (int i = pieces(random_); i > 0; --i) {
        const double seconds = 2 * kPiece * uniform(random_);
        const double at = uniform(random_);
        (at < 0.5 ? lost.computing : at < 0.75 ? lost.summing : lost.looking) += seconds;
      }
      lost.from = uniform(random_);
    }
    return lost;
  }

  // Frames leave a rank one after the other, and enter it likewise; both may happen at the same time.
  static void carry(std::vector<Frame>& frames, std::vector<double>& free, bool out,
                    const std::vector<SimulatedRank>& ranks) {
    std::stable_sort(frames.begin(), frames.end(), [](const Frame& a, const Frame& b) { return a.time < b.time; });
    for (Frame& frame : frames) {
      const std::size_t end = out ? frame.from : frame.to;
      const double seconds = kFrame / (out ? ranks[end].out : ranks[end].in);
      free[end] = out ? std::max(frame.time, free[end]) + seconds : std::max(frame.time, free[end] + seconds);
      frame.time = free[end];
    }
  }

  void step(const Look& look) {
    const std::size_t world = ranks_.size();
    std::normal_distribution<double> normal;
    std::vector<double> ready(world), encoded(world);
    std::vector<Lost> lost(world);
    std::vector<Frame> own;
    for (std::size_t r = 0; r < world; ++r) {
      const SimulatedRank& rank = ranks_[r];
      lost[r] = lose(rank.lost);
      const double compute = rank.compute * std::max(0.2, 1 + rank.jitter * normal(random_)) + rank.delayed +
                             (look.pauses ? rank.pause : 0) + lost[r].computing;
      ready[r] = begun_[r] + compute;
      encoded[r] = ready[r] + rank.encode * static_cast<double>(lanes_);
      for (std::size_t lane = 0; lane < lanes_; ++lane) {
        for (std::size_t k = 1; k < world; ++k) {
          own.push_back({ready[r] + rank.encode * static_cast<double>(lane + 1), r, (r + k) % world, lane});
        }
      }
      if (look.seen != nullptr) {
        RankSeen& s = (*look.seen)[r];
        s.compute_seconds += compute;
        s.codec_seconds_per_byte += rank.encode * static_cast<double>(lanes_);
        s.delayed_seconds += rank.delayed + lost[r].computing + lost[r].summing + lost[r].looking;
        s.longest_gap = std::max(s.longest_gap, look.pauses ? rank.pause : 0);
      }
    }
    std::vector<double> out(world, 0), in(world, 0);
    carry(own, out, true, ranks_);
    carry(own, in, false, ranks_);
    std::vector<std::vector<double>> reduced(world, std::vector<double>(lanes_, 0));
    for (std::size_t r = 0; r < world; ++r) {
      std::fill(reduced[r].begin(), reduced[r].end(), encoded[r]);
    }
    for (const Frame& frame : own) {
      reduced[frame.to][frame.lane] = std::max(reduced[frame.to][frame.lane], frame.time);
    }
    for (std::size_t r = 0; r < world; ++r) {
      for (auto lane = static_cast<std::size_t>(lost[r].from * static_cast<double>(lanes_)); lane < lanes_; ++lane) {
        reduced[r][lane] += lost[r].summing;
      }
    }
    std::vector<Frame> results;
    for (std::size_t r = 0; r < world; ++r) {
      for (std::size_t lane = 0; lane < lanes_; ++lane) {
        for (std::size_t k = 1; k < world; ++k) {
          results.push_back({reduced[r][lane], r, (r + k) % world, lane});
        }
      }
    }
    carry(results, out, true, ranks_);
    carry(results, in, false, ranks_);
    tell(look, ready, encoded, own, results, reduced, lost);
  }

  // Once all frames are encoded, a rank waits for the missing ones.
  void tell(const Look& look, const std::vector<double>& ready, const std::vector<double>& encoded,
            const std::vector<Frame>& own, const std::vector<Frame>& results,
            const std::vector<std::vector<double>>& reduced, const std::vector<Lost>& lost) {
    struct Arrival {
      Frame frame;
      bool direct;
    };
    std::vector<std::vector<Arrival>> arrivals(ranks_.size());
    for (const Frame& frame : own) {
      arrivals[frame.to].push_back({frame, true});
    }
    for (const Frame& frame : results) {
      arrivals[frame.to].push_back({frame, false});
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::stable_sort(arrivals[r].begin(), arrivals[r].end(),
                       [](const Arrival& a, const Arrival& b) { return a.frame.time < b.frame.time; });
      PeerWaits& waits = waits_[r];
      const double before = waits.total();
      std::vector<int> last(lanes_, -1);
      double end = encoded[r];
      auto late = static_cast<std::ptrdiff_t>(lost[r].from * static_cast<double>(arrivals[r].size()));
      for (const Arrival& arrival : arrivals[r]) {
        end = std::max(end, arrival.frame.time) + (late-- == 0 ? lost[r].looking : 0);
        const double waited = end - encoded[r] - (waits.total() - before);
        waits.waited(waited, waited);
        const double since = arrival.direct ? before : before + reduced[r][arrival.frame.lane] - encoded[r];
        const auto peer = static_cast<int>(arrival.frame.from);
        if (waits.came(peer, since, static_cast<std::uint64_t>(kFrame),
                       !arrival.direct           ? PeerWaits::Frame::result
                       : arrival.frame.lane == 0 ? PeerWaits::Frame::first
                                                 : PeerWaits::Frame::own) &&
            arrival.direct) {
          last[arrival.frame.lane] = peer;
        }
      }
      for (const int peer : last) {
        waits.lane_ended(peer);
      }
      if (look.seen != nullptr) {
        (*look.seen)[r].wait_seconds += end - ready[r];
        (*look.seen)[r].step_seconds += end - begun_[r];
      }
      begun_[r] = end;
    }
  }

  std::vector<SimulatedRank> ranks_;
  std::mt19937 random_;
  std::vector<double> begun_;
  std::size_t lanes_;
  std::vector<PeerWaits> waits_;
};

}  // namespace gradwire::observe::test
