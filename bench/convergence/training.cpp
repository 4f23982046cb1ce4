#include "bench/convergence/training.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "bench/convergence/gradient_reducer.hpp"
#include "bench/convergence/random.hpp"
#include "bench/support/samples.hpp"
#include "gradwire/emulation.hpp"

namespace gradwire::convergence {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBatchStream = 100;  // for rank 0; each further rank has the next number

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr double kFirstEvaluation = 10;

// Returns the steps at which the loss is evaluated, for a curve with a logarithmic x axis.
std::set<std::uint64_t> evaluated_steps(const Training& training) {
  const auto last = static_cast<double>(training.steps);
  const double first = std::min(kFirstEvaluation, last);
  std::set<std::uint64_t> steps{training.steps};
  for (int i = 1; i < training.evaluations; ++i) {
    steps.insert(
        static_cast<std::uint64_t>(std::lround(last * std::pow(first / last, i / (training.evaluations - 1.0)))));
  }
  return steps;
}

float learning_rate(const Training& training, std::uint64_t step) {
  const double done = static_cast<double>(step - 1) / static_cast<double>(training.steps);
  return done <= training.decay_from
             ? training.learning_rate
             : training.learning_rate * static_cast<float>((1 - done) / (1 - training.decay_from));
}

// Results of one rank. They are merged after all ranks have ended, so that ranks share only the transport.
struct RankLog {
  struct Evaluation {
    std::uint64_t step = 0;
    std::uint64_t bytes_sent = 0;
    Score score;
  };
  std::vector<Evaluation> evaluations;
  Score test;
  bool finite = true;
  Statistics totals;
  std::uint64_t residual_bytes = 0;
  std::vector<double> step_seconds, exposed_seconds;
};

class Worker {
 public:
  Worker(const Training& training, const Samples& shard, const Reducing& reducing, std::uint64_t seed,
         std::shared_ptr<Transport> transport)
      : training_(training),
        shard_(shard),
        model_(training.shape, seed),
        velocity_(model_.parameters().size()),
        batch_(training.batch),
        random_(seed, kBatchStream + static_cast<std::uint64_t>(transport->rank())),
        reducer_(make_reducer(reducing, std::move(transport), model_)) {}

  void run(RankLog& log) {
    const auto evaluated = evaluated_steps(training_);
    for (std::uint64_t step = 1; step <= training_.steps && log.finite; ++step) {
      const auto start = Clock::now();
      for (std::uint32_t& sample : batch_) {
        sample = static_cast<std::uint32_t>(random_.below(shard_.count()));
      }
      model_.backward(shard_, batch_);
      const auto after_backward = Clock::now();
      reducer_->reduce();
      log.exposed_seconds.push_back(seconds_since(after_backward));
      log.finite =
          update(learning_rate(training_, step));  // parameters are equal on all ranks, so all stop at the same step
      log.step_seconds.push_back(seconds_since(start));
      if (evaluated.contains(step)) {
        log.evaluations.push_back({step, reducer_->statistics().bytes_sent, model_.score(shard_)});
      }
    }
    log.totals = reducer_->statistics();
    log.residual_bytes = reducer_->residual_bytes();
  }

  [[nodiscard]] const Mlp& model() const { return model_; }

 private:
  bool update(float rate) {
    float sum = 0;
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = training_.momentum * velocity_[i] + model_.gradients()[i];
      model_.parameters()[i] -= rate * velocity_[i];
      sum += model_.parameters()[i];
    }
    return std::isfinite(sum);
  }

  const Training& training_;
  const Samples& shard_;
  Mlp model_;
  std::vector<float> velocity_;
  std::vector<std::uint32_t> batch_;
  Random random_;
  std::unique_ptr<GradientReducer> reducer_;
};

// Runs a thread for each rank. Throws the error of the lowest rank that failed.
void run_ranks(std::vector<std::shared_ptr<Transport>> world,
               const std::function<void(std::size_t, std::shared_ptr<Transport>)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(world.size());
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank, world[rank]);
      } catch (const std::exception& error) {
        errors[rank] = std::current_exception();
        world[rank]->abort(Error(ErrorCode::internal, error.what()));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

// Returns every `ranks`-th sample, beginning at `rank`, so that the ranks score the test set together.
Samples share_of(const Samples& samples, std::size_t rank, std::size_t ranks) {
  Samples share{.inputs = samples.inputs, .features = {}, .labels = {}};
  for (std::size_t i = rank; i < samples.count(); i += ranks) {
    share.features.insert(share.features.end(), samples.row(i), samples.row(i) + samples.inputs);
    share.labels.push_back(samples.labels[i]);
  }
  return share;
}

Run merge(const std::vector<RankLog>& logs) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  Run run;
  Score test;
  for (const RankLog& log : logs) {
    run.totals.add(log.totals);
    run.residual_bytes += log.residual_bytes;
    test.add(log.test);
  }
  for (std::size_t i = 0; i < logs.front().evaluations.size(); ++i) {
    Score score;
    double bytes = 0;
    for (const RankLog& log : logs) {
      score.add(log.evaluations[i].score);
      bytes += static_cast<double>(log.evaluations[i].bytes_sent);
    }
    run.curve.push_back(
        {logs.front().evaluations[i].step, bytes / static_cast<double>(logs.size()) / 1e6, score.mean_loss()});
  }
  run.final_loss = logs.front().finite ? run.curve.back().loss : kUnknown;
  run.accuracy = test.count > 0 ? test.accuracy() : kUnknown;
  run.step_seconds = bench::median(logs.front().step_seconds);
  run.exposed_seconds = bench::median(logs.front().exposed_seconds);
  return run;
}

}  // namespace

bool Run::diverged() const { return !std::isfinite(final_loss); }

double Run::bits_per_element() const {
  return 32.0 * static_cast<double>(totals.bytes_sent) / static_cast<double>(totals.bytes_uncompressed);
}

Run train(const Training& training, const std::vector<Samples>& shards, const Samples* test, const Reducing& reducing,
          std::uint64_t seed) {
  auto world = make_inproc_world(static_cast<int>(shards.size()));
  if (training.link) {
    for (auto& transport : world) {
      transport = make_throttled(transport, *training.link);
    }
  }
  std::vector<RankLog> logs(shards.size());
  run_ranks(std::move(world), [&](std::size_t rank, std::shared_ptr<Transport> transport) {
    Worker worker(training, shards[rank], reducing, seed, std::move(transport));
    worker.run(logs[rank]);
    if (test != nullptr && logs[rank].finite) {
      logs[rank].test = worker.model().score(share_of(*test, rank, shards.size()));
    }
  });
  Run run = merge(logs);
  run.parameters = Mlp(training.shape, seed).tensors().back().first + training.shape.classes;
  return run;
}

}  // namespace gradwire::convergence
