#include "bench/observe/comparison_share.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/elapsed.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/session.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/parts/rank_comparison/rank_comparison.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLooks = 1'000'000;

// Keeps the latest counts of one session.
class Latest final : public observe::Sink {
 public:
  void take(const observe::Round& round) override {
    for (const observe::Snapshot& snapshot : round.snapshots) {
      if (snapshot.statistics.rank == 0 && snapshot.slow) {
        slow = *snapshot.slow;
        statistics = snapshot.statistics;
      }
    }
  }
  observe::SlowState slow;
  SessionStatistics statistics;
};

double frame_seconds() {
  observe::PeerWaits waits(0, 4);
  const auto begin = Clock::now();
  for (int i = 0; i < kLooks; ++i) {
    const double since = waits.total();
    waits.waited(1e-6, 1e-6);
    waits.came(1 + i % 3, since, 57'344, observe::PeerWaits::Frame::own);
    waits.lane_ended(1);
  }
  return seconds_since(begin) / kLooks;
}

// Returns the seconds that the comparison takes at the end of a step. Reading the clock and counting the step are not
// part of it, since a session does both anyway.
double end_seconds() {
  session::BucketRunner runner(make_inproc_world(1)[0], {});
  observe::PeerWaits waits(0, 2);
  session::StepWatch steps;
  session::RankComparison comparison(runner, waits, steps, observe::kSlowShare);
  steps.count(1e-6);
  const auto begin = Clock::now();
  auto now = begin;
  std::uint64_t due = 0;
  for (int i = 0; i < kLooks; ++i) {
    comparison.step_ended(now += std::chrono::microseconds(2), 1e-6, true);
    due += comparison.due(0) ? 1 : 0;
  }
  return due == 0 ? seconds_since(begin) / kLooks : 0;
}

Policy policy_of(const StepOptions& options) {
  return options.codec == "dense" ? Policy::uniform("exact", Algorithm::dense) : Policy::uniform(options.codec);
}

}  // namespace

ComparisonShare comparison_share(const StepOptions& options, double seconds) {
  const auto sink = std::make_shared<Latest>();
  observe::add_sink(sink);
  const auto world = make_inproc_world(options.ranks);
  std::atomic<int> steps = 1'000'000'000;  // rank 0 lowers it to end the run
  ComparisonShare share;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = options.link.empty() ? world[static_cast<std::size_t>(rank)]
                                                  : make_emulated(world[static_cast<std::size_t>(rank)], options.link);
      std::vector<float> gradient(options.elements, 0.5F);
      Session session(transport, policy_of(options));
      const TensorId id = session.add("gradient", {gradient.data(), gradient.size(), DType::f32});
      const auto begin = Clock::now();
      int made = 0;
      for (; made < steps; ++made) {
        session.ready(id);
        session.finish();
        if (rank == 0 && steps > made + 2 && seconds_since(begin) > seconds) {
          steps = made + 3;  // no rank is more than one step ahead
        }
      }
      if (rank == 0) {
        share.steps = made;
        share.step_seconds = seconds_since(begin) / made;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  observe::remove_sink(sink);
  const observe::SlowState& slow = sink->slow;
  share.comparisons = static_cast<double>(slow.comparisons);
  share.each_seconds = slow.comparisons > 0 ? slow.seconds / share.comparisons : 0;
  share.frames = static_cast<double>(sink->statistics.all().frames_sent) / share.steps;
  share.frame_seconds = frame_seconds();
  share.end_seconds = end_seconds();
  return share;
}

}  // namespace gradwire::bench
