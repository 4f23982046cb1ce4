// Computes, without running it, the records that each rank of a two_shot all-reduce would make, by clocks that differ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "watch/timeline/recording.hpp"

namespace gradwire::test {

struct JobFacts {
  int ranks = 4;
  int steps = 3;
  int buckets = 3;
  int lanes = 3;  // per bucket
  std::int64_t latency = 20'000;
  double bytes_per_ns = 1;
  std::uint64_t bytes = 20'000;  // per message
  std::int64_t reduce = 5'000;
  std::int64_t decode = 4'000;
  // These are given by rank.
  std::vector<std::int64_t> compute;
  std::vector<std::int64_t> encode;
  std::vector<double> link;         // factor of bytes_per_ns
  std::vector<std::int64_t> ahead;  // of clocks; each value other than 0 means a host of its own
  explicit JobFacts(int world = 4)
      : ranks(world),
        compute(static_cast<std::size_t>(world), 300'000),
        encode(static_cast<std::size_t>(world), 6'000),
        link(static_cast<std::size_t>(world), 1),
        ahead(static_cast<std::size_t>(world), 0) {}
};

class MadeUpJob {
 public:
  using Activity = watch::timeline::Activity;
  using Kind = observe::EventKind;

  explicit MadeUpJob(JobFacts facts) : facts_(std::move(facts)), ranks_(static_cast<std::size_t>(facts_.ranks)) {
    for (int step = 0; step < facts_.steps; ++step) {
      play(static_cast<std::uint32_t>(step));
    }
  }

  [[nodiscard]] watch::timeline::Recording recording() const {
    watch::timeline::Recording all;
    all.streams.push_back({.part = "library", .world_size = facts_.ranks});
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const bool own = facts_.ahead[r] != 0;
      if (all.clocks.empty() || own) {
        all.clocks.push_back({"host " + std::to_string(r), 1'700'000'000'000'000'000 - facts_.ahead[r]});
      }
      watch::timeline::RankLog log;
      log.part = "library";
      log.rank = static_cast<int>(r);
      log.clock = own ? static_cast<int>(all.clocks.size()) - 1 : 0;
      log.host = "host";
      log.file = "gradwire-library-rank-" + std::to_string(r) + ".events";
      log.activities = ranks_[r].activities;
      for (Activity& activity : log.activities) {
        activity.begin += facts_.ahead[r];
        activity.end += facts_.ahead[r];
      }
      watch::timeline::sort_activities(log.activities);
      all.ranks.push_back(std::move(log));
    }
    return all;
  }

 private:
  struct Arrival {
    std::int64_t at;
    Activity receive;
  };
  struct RankState {
    std::vector<Activity> activities;
    std::int64_t free = 1'000'000;  // when its thread is free
    std::int64_t step_began = 1'000'000;
    std::int64_t link_free = 0;
    std::vector<Arrival> arrivals;       // not yet seen
    std::set<std::pair<int, int>> open;  // buckets and lanes
    std::vector<int> left;               // lanes, by bucket
    std::vector<std::int64_t> entered;
  };
  struct Work {
    std::int64_t ready;
    int rank;
    Kind kind;
    int bucket;
    int lane;
    auto operator<=>(const Work&) const = default;  // NOLINT(modernize-use-nullptr): it means the comparison with 0
  };

  Activity activity(Kind kind, std::int64_t begin, std::int64_t end, int bucket, int lane) const {
    return {.begin = begin,
            .end = end,
            .bytes = facts_.bytes,
            .step = step_,
            .bucket = static_cast<std::uint32_t>(bucket),
            .stream = 0,
            .kind = kind,
            .lane = static_cast<std::uint16_t>(lane)};
  }

  void play(std::uint32_t step) {
    step_ = step;
    std::vector<Work> works;
    arrived_.clear();
    for (int r = 0; r < facts_.ranks; ++r) {
      RankState& rank = ranks_[static_cast<std::size_t>(r)];
      rank.left.assign(static_cast<std::size_t>(facts_.buckets), facts_.lanes);
      rank.entered.clear();
      for (int b = 0; b < facts_.buckets; ++b) {
        const std::int64_t at =
            rank.step_began + facts_.compute[static_cast<std::size_t>(r)] * (b + 1) / facts_.buckets;
        rank.entered.push_back(at);
        if (b == 0) {
          rank.activities.push_back(activity(Kind::step_begin, at, at, 0, 0));
          rank.activities.back().bucket = observe::kNoBucket;
        }
        rank.activities.push_back(activity(Kind::bucket_begin, at, at, b, 0));
        for (int lane = 0; lane < facts_.lanes; ++lane) {
          works.push_back({at, r, Kind::encode, b, lane});
        }
      }
    }
    while (!works.empty()) {
      const auto next = std::min_element(works.begin(), works.end(), [this](const Work& a, const Work& b) {
        return std::tuple(start(a), a) < std::tuple(start(b), b);
      });
      const Work work = *next;
      works.erase(next);
      run(work, works);
    }
    for (RankState& rank : ranks_) {
      const std::int64_t from = rank.entered.back();
      rank.free += 2'000;
      rank.activities.push_back(activity(Kind::step_end, from, rank.free, 0, 0));
      rank.activities.back().bucket = observe::kNoBucket;
      rank.step_began = rank.free;
    }
  }

  [[nodiscard]] std::int64_t start(const Work& work) const {
    return std::max(work.ready, ranks_[static_cast<std::size_t>(work.rank)].free);
  }

  void run(const Work& work, std::vector<Work>& works) {
    RankState& rank = ranks_[static_cast<std::size_t>(work.rank)];
    const std::int64_t begin = start(work);
    if (begin > rank.free && !rank.open.empty()) {
      rank.activities.push_back(activity(Kind::wait, rank.free, begin, work.bucket, 0));
    }
    std::erase_if(rank.arrivals, [&](Arrival& arrival) {
      if (arrival.at > begin) {
        return false;
      }
      arrival.receive.end = std::max(arrival.at, rank.free);  // a thread that computes sees it later
      rank.activities.push_back(arrival.receive);
      return true;
    });
    const std::int64_t took = work.kind == Kind::encode   ? facts_.encode[static_cast<std::size_t>(work.rank)]
                              : work.kind == Kind::reduce ? facts_.reduce
                                                          : facts_.decode;
    rank.free = begin + took;
    rank.activities.push_back(activity(work.kind, begin, rank.free, work.bucket, work.lane));
    rank.open.insert({work.bucket, work.lane});
    if (work.kind == Kind::decode) {
      rank.open.erase({work.bucket, work.lane});
      if (--rank.left[static_cast<std::size_t>(work.bucket)] == 0) {
        rank.activities.push_back(
            activity(Kind::bucket_end, rank.entered[static_cast<std::size_t>(work.bucket)], rank.free, work.bucket, 0));
      }
      return;
    }
    for (int peer = 0; peer < facts_.ranks; ++peer) {
      if (peer != work.rank) {
        send(work, peer, works);
      }
    }
  }

  void send(const Work& work, int peer, std::vector<Work>& works) {
    RankState& rank = ranks_[static_cast<std::size_t>(work.rank)];
    const int hop = work.kind == Kind::encode ? 0 : 1;
    Activity send = activity(Kind::send, rank.free, 0, work.bucket, work.lane);
    send.peer = static_cast<std::uint16_t>(peer);
    send.hop = static_cast<std::uint8_t>(hop);
    rank.link_free = std::max(rank.link_free, rank.free) +
                     static_cast<std::int64_t>(static_cast<double>(facts_.bytes) / facts_.bytes_per_ns /
                                               facts_.link[static_cast<std::size_t>(work.rank)]);
    send.end = rank.link_free;
    rank.activities.push_back(send);
    Activity receive = activity(Kind::receive, 0, 0, work.bucket, work.lane);
    receive.peer = static_cast<std::uint16_t>(work.rank);
    receive.hop = static_cast<std::uint8_t>(hop);
    RankState& other = ranks_[static_cast<std::size_t>(peer)];
    receive.begin = other.entered[static_cast<std::size_t>(work.bucket)];
    const std::int64_t at = std::max(rank.link_free + facts_.latency, receive.begin);
    other.arrivals.push_back({at, receive});
    auto& [count, last] = arrived_[{peer, hop, work.bucket, work.lane}];
    last = std::max(last, at);
    if (++count == facts_.ranks - 1) {
      works.push_back({last, peer, hop == 0 ? Kind::reduce : Kind::decode, work.bucket, work.lane});
    }
  }

  JobFacts facts_;
  std::uint32_t step_ = 0;
  std::vector<RankState> ranks_;
  std::map<std::tuple<int, int, int, int>, std::pair<int, std::int64_t>> arrived_;
};

/// Returns a job with clocks that are seconds apart, and with different links and computing times.
inline JobFacts random_facts(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  JobFacts facts(static_cast<int>(between(2, 6)));
  facts.steps = static_cast<int>(between(1, 4));
  facts.buckets = static_cast<int>(between(1, 4));
  facts.lanes = static_cast<int>(between(1, 5));
  facts.latency = between(1'000, 60'000);
  for (std::size_t r = 0; r < facts.compute.size(); ++r) {
    facts.compute[r] = between(50'000, 900'000);
    facts.encode[r] = between(500, 20'000);
    facts.link[r] = 0.2 + static_cast<double>(between(0, 100)) / 50;
    facts.ahead[r] = r == 0 || between(0, 2) == 0 ? 0 : between(-5'000'000'000, 5'000'000'000);
  }
  return facts;
}

}  // namespace gradwire::test
