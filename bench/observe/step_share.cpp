#include "bench/observe/step_share.hpp"

#include <atomic>
#include <barrier>
#include <exception>
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

// Beside the sink that is measured: what came.
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

}  // namespace

StepShare step_share(const StepOptions& options, const std::function<std::shared_ptr<observe::Sink>()>& make) {
  StepShare share;
  std::vector<double> off;
  std::vector<double> on;
  double events = 0;
  double reader = 0;
  std::shared_ptr<Watching> watching;
  std::barrier meeting(options.ranks);
  const auto world = make_inproc_world(options.ranks);
  const auto play = [&](int rank) {
    Rank self(world[static_cast<std::size_t>(rank)], options);
    for (int i = 0; i < options.steps; ++i) {
      self.step();
    }
    for (int block = 0; block < 2 * options.blocks; ++block) {
      const bool observed = block % 2 == 1;
      if (rank == 0 && observed) {
        watching = std::make_shared<Watching>(make());
        observe::add_sink(watching);
      }
      meeting.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < options.steps; ++i) {
        self.step();
      }
      meeting.arrive_and_wait();
      if (rank == 0) {
        (observed ? on : off).push_back(seconds_since(begin) / options.steps);
        if (observed) {
          observe::remove_sink(watching);
          events += static_cast<double>(watching->recorded);
          reader += watching->reader_seconds;
          share.dropped += watching->dropped;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < options.ranks; ++rank) {
    threads.emplace_back(play, rank);
  }
  play(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  const double steps = static_cast<double>(options.blocks) * options.steps;
  share.off_seconds = median(off);
  share.on_seconds = median(on);
  share.off_spread = (quantile(off, 0.75) - quantile(off, 0.25)) / share.off_seconds;
  share.events = events / steps;
  share.reader_seconds = reader / steps;
  return share;
}

}  // namespace gradwire::bench
