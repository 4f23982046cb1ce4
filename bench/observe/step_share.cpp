#include "bench/observe/step_share.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "base/elapsed.hpp"
#include "bench/support/samples.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/session.hpp"

namespace gradwire::bench {
namespace {

constexpr int kTensors = 16;

// Wraps the sink that is measured, and counts the events that reach it.
class Watching final : public observe::Sink {
 public:
  explicit Watching(std::shared_ptr<observe::Sink> inner) : inner_(std::move(inner)) {}
  void take(const observe::Round& round) override {
    inner_->take(round);
    recorded = round.recorded;
    dropped = round.dropped;
    reader_seconds = round.collector_seconds;
  }
  std::uint64_t recorded = 0;
  std::uint64_t dropped = 0;
  double reader_seconds = 0;

 private:
  std::shared_ptr<observe::Sink> inner_;
};

class Rank {
 public:
  Rank(const std::shared_ptr<Transport>& transport, const StepOptions& options)
      : gradients_(kTensors, std::vector<float>(options.elements / kTensors, 0.5F)),
        session_(options.link.empty() ? transport : make_emulated(transport, options.link),
                 Policy::uniform(options.codec)) {
    for (std::vector<float>& gradient : gradients_) {
      ids_.push_back(
          session_.add("tensor " + std::to_string(ids_.size()), {gradient.data(), gradient.size(), DType::f32}));
    }
  }

  void step() {
    for (std::size_t i = ids_.size(); i > 0; --i) {
      session_.ready(ids_[i - 1]);
    }
    session_.finish();
  }

 private:
  std::vector<std::vector<float>> gradients_;
  Session session_;
  std::vector<TensorId> ids_;
};

// Runs blocks of steps on all ranks; rank 0 observes some of the blocks.
class Contest {
 public:
  Contest(const StepOptions& options, const std::function<std::shared_ptr<observe::Sink>()>& make)
      : options_(options), make_(make), meeting_(options.ranks), world_(make_inproc_world(options.ranks)) {}

  StepShare run() {
    std::vector<std::thread> threads;
    for (int rank = 1; rank < options_.ranks; ++rank) {
      threads.emplace_back([this, rank] { play(rank); });
    }
    play(0);
    for (std::thread& thread : threads) {
      thread.join();
    }
    share_.off_seconds = median(off_);
    share_.on_ratio = median(ratios_);
    share_.off_ratio = quantile(off_ratios_, 0.75);
    share_.events /= options_.blocks * steps_;
    share_.reader_seconds /= options_.blocks * steps_;
    return share_;
  }

 private:
  // Each round has four blocks: one of the first two is observed (the first one in every other round), the others are
  // not.
  void play(int rank) {
    Rank self(world_[static_cast<std::size_t>(rank)], options_);
    const double seconds = block(self, rank, false);
    if (rank == 0) {
      steps_ = std::max(8, static_cast<int>(options_.seconds / seconds));
    }
    for (int round = 0; round < options_.blocks; ++round) {
      const bool first = round % 2 == 1;
      const double before = block(self, rank, first);
      const double after = block(self, rank, !first);
      const double one = block(self, rank, false);
      const double other = block(self, rank, false);
      if (rank == 0) {
        ratios_.push_back(first ? before / after : after / before);
        off_ratios_.push_back(std::abs(other / one - 1));
        off_.insert(off_.end(), {first ? after : before, one, other});
      }
    }
  }

  // Runs a block and returns the seconds of a step.
  double block(Rank& self, int rank, bool observed) {
    std::shared_ptr<Watching> watching;
    if (rank == 0 && observed) {
      watching = std::make_shared<Watching>(make_());
      observe::add_sink(watching);
    }
    meeting_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps_; ++i) {
      self.step();
    }
    meeting_.arrive_and_wait();
    const double seconds = seconds_since(begin) / steps_;
    if (watching) {
      observe::remove_sink(watching);
      share_.events += static_cast<double>(watching->recorded);
      share_.reader_seconds += watching->reader_seconds;
      share_.dropped += watching->dropped;
    }
    return seconds;
  }

  const StepOptions& options_;
  const std::function<std::shared_ptr<observe::Sink>()>& make_;
  std::barrier<> meeting_;
  std::vector<std::shared_ptr<Transport>> world_;
  int steps_ = 8;  // per block; rank 0 sets it between blocks
  // Results of rank 0.
  StepShare share_;
  std::vector<double> off_;
  std::vector<double> ratios_;
  std::vector<double> off_ratios_;
};

}  // namespace

StepShare step_share(const StepOptions& options, const std::function<std::shared_ptr<observe::Sink>()>& make) {
  return Contest(options, make).run();
}

}  // namespace gradwire::bench
