#include "training.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <span>
#include <utility>

#include "adamw.hpp"
#include "gradient_dump.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/torch.hpp"
#include "model.hpp"

namespace char_lm {
namespace {

constexpr std::uint64_t kLargeTensorBytes = 64 * 1024;
constexpr std::uint32_t kStages = 3;  // early, middle and late in training

using Clock = std::chrono::steady_clock;
using Batch = std::pair<torch::Tensor, torch::Tensor>;  // inputs and targets, [batch, context]

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Windows of `context` + 1 symbols that start at `starts`: the inputs, and the same one symbol later.
Batch make_batch(std::span<const std::uint8_t> symbols, std::span<const std::size_t> starts, std::int64_t context) {
  const auto rows = static_cast<std::int64_t>(starts.size());
  torch::Tensor inputs = torch::empty({rows, context}, torch::kInt64);
  torch::Tensor targets = torch::empty({rows, context}, torch::kInt64);
  auto* input = inputs.data_ptr<std::int64_t>();
  auto* target = targets.data_ptr<std::int64_t>();
  for (const std::size_t start : starts) {
    const auto window = symbols.subspan(start, static_cast<std::size_t>(context) + 1);
    input = std::copy(window.begin(), window.end() - 1, input);
    target = std::copy(window.begin() + 1, window.end(), target);
  }
  return {inputs, targets};
}

/// Random windows of one rank's part of the text; the same sequence for the same seed and rank.
class Sampler {
 public:
  Sampler(std::span<const std::uint8_t> shard, const TrainingOptions& options, int rank)
      : shard_(shard), context_(options.context), starts_(static_cast<std::size_t>(options.batch)) {
    std::seed_seq seed{options.seed, static_cast<std::uint64_t>(rank)};
    random_.seed(seed);
  }

  Batch next() {
    const std::size_t places = shard_.size() - static_cast<std::size_t>(context_);
    for (std::size_t& start : starts_) {
      start = static_cast<std::size_t>(random_() % places);
    }
    return make_batch(shard_, starts_, context_);
  }

 private:
  std::span<const std::uint8_t> shard_;
  std::int64_t context_;
  std::vector<std::size_t> starts_;
  std::mt19937_64 random_;
};

/// Linear warm-up over the first tenth, then half a cosine down to zero: runs end calm, so that they can be compared.
double learning_rate_at(int step, const TrainingOptions& options) {
  const double warm_up = std::max(1.0, options.steps / 10.0);
  if (step < warm_up) {
    return options.learning_rate * (step + 1) / warm_up;
  }
  const double done = (step - warm_up) / std::max(1.0, options.steps - warm_up);
  return options.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

/// Sums `values` over the ranks.
template <std::size_t N>
std::array<double, N> sum_over_ranks(std::array<double, N> values, MPI_Comm communicator) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(N), MPI_DOUBLE, MPI_SUM, communicator);
  return values;
}

/// Mean loss over the whole held-out part; the ranks share its windows.
double held_out_loss(Transformer& model, const Text& text, const TrainingOptions& options, int rank, int world_size,
                     MPI_Comm communicator) {
  torch::NoGradGuard no_grad;
  const auto context = static_cast<std::size_t>(options.context);
  const auto held_out = text.held_out();
  const std::size_t windows = (held_out.size() - 1) / context;
  double loss = 0, count = 0;
  for (auto w = static_cast<std::size_t>(rank); w < windows; w += static_cast<std::size_t>(world_size)) {
    const std::array starts{w * context};
    const auto [inputs, targets] = make_batch(held_out, starts, options.context);
    loss += model->loss(inputs, targets).item<double>();
    ++count;
  }
  const auto total = sum_over_ranks(std::array{loss, count}, communicator);
  return total[0] / total[1];
}

/// Captures this rank's gradients, before they are reduced, at the steps that begin a stage.
class GradientRecorder {
 public:
  GradientRecorder(const TrainingOptions& options, int rank) : steps_(options.steps) {
    if (rank == 0 && !options.save_gradients.empty()) {
      writer_ = std::make_unique<gradient_dump::Writer>(options.save_gradients);
    }
  }

  /// Every rank answers for itself: the others need not change anything in such a step.
  [[nodiscard]] bool wants(int step) const { return writer_ && stage_ < kStages && step == step_of(stage_); }

  void record(const Transformer& model) {
    for (const auto& item : model->named_parameters()) {
      const torch::Tensor gradient = item.value().grad().contiguous();
      writer_->add(item.key(), stage_, {gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())});
    }
    writer_->flush();
    ++stage_;
  }

 private:
  // After a tenth, in the middle and at the end.
  [[nodiscard]] int step_of(std::uint32_t stage) const {
    if (stage == 0) {
      return steps_ / 10;
    }
    return stage == 1 ? steps_ / 2 : steps_ - 1;
  }

  int steps_;
  std::uint32_t stage_ = 0;
  std::unique_ptr<gradient_dump::Writer> writer_;
};

Transformer make_model(const Text& text, const TrainingOptions& options) {
  torch::manual_seed(options.seed);
  ModelOptions model;
  model.vocabulary = static_cast<std::int64_t>(text.vocabulary.size());
  model.context = options.context;
  model.width = options.width;
  model.heads = options.heads;
  model.layers = options.layers;
  return Transformer(model);
}

void count_parameters(const Transformer& model, RunResult& result) {
  std::uint64_t large = 0;
  for (const auto& parameter : model->parameters()) {
    const auto count = static_cast<std::uint64_t>(parameter.numel());
    result.parameters += count;
    if (parameter.nbytes() >= kLargeTensorBytes) {
      large += count;
    }
  }
  result.large_share = static_cast<double>(large) / static_cast<double>(result.parameters);
}

/// Model, session and optimizer of one run.
class Trainer {
 public:
  Trainer(const gradwire::Policy& policy, const Text& text, const TrainingOptions& options, MPI_Comm communicator)
      : options_(options),
        communicator_(communicator),
        model_(make_model(text, options)),
        session_(gradwire::mpi::make_session(communicator, policy, {}, options.link)),
        sync_(session_, model_),
        optimizer_(model_->parameters(), {.learning_rate = options.learning_rate}),
        sampler_(text.shard(session_.rank(), session_.world_size()), options, session_.rank()),
        recorder_(options, session_.rank()) {}

  /// One step; this rank's loss before it.
  double step(int step) {
    const auto [inputs, targets] = sampler_.next();
    optimizer_.set_learning_rate(learning_rate_at(step, options_));
    if (options_.freeze_second_moment_at > 0 && step == options_.freeze_second_moment_at) {
      optimizer_.freeze_second_moment();
    }
    optimizer_.zero_grad();
    const torch::Tensor loss = model_->loss(inputs, targets);
    if (recorder_.wants(step)) {
      const auto no_sync = sync_.no_sync();  // finish() hands the gradients over
      loss.backward();
      recorder_.record(model_);
    } else {
      loss.backward();
    }
    sync_.finish();
    optimizer_.step();
    return loss.item<double>();
  }

  /// Milliseconds that the all-reduce of one step takes when no backward pass hides it: the median of a few.
  double communication_alone_ms() {
    std::array<double, 5> times{};
    for (double& time : times) {
      const auto [inputs, targets] = sampler_.next();
      optimizer_.zero_grad();
      {
        const auto no_sync = sync_.no_sync();
        model_->loss(inputs, targets).backward();
      }
      MPI_Barrier(communicator_);
      const auto start = Clock::now();
      sync_.finish();
      time = milliseconds_since(start);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }

  [[nodiscard]] Transformer& model() { return model_; }
  [[nodiscard]] gradwire::Session& session() { return session_; }

 private:
  TrainingOptions options_;
  MPI_Comm communicator_;
  Transformer model_;
  gradwire::Session session_;
  gradwire::torch::Adapter sync_;
  AdamW optimizer_;
  Sampler sampler_;
  GradientRecorder recorder_;
};

}  // namespace

RunResult train(const std::string& name, const gradwire::Policy& policy, const Text& text,
                const TrainingOptions& options, MPI_Comm communicator,
                const std::function<void(const Progress&)>& progress) {
  torch::set_num_threads(1);  // the ranks share the cores
  Trainer trainer(policy, text, options, communicator);
  gradwire::Session& session = trainer.session();
  const int warm_up = std::min(5, options.steps / 2), tail = std::max(1, options.steps / 10);
  double smoothed = 0, tail_loss = 0;
  Clock::time_point start;
  for (int step = 0; step < options.steps; ++step) {
    if (step == warm_up) {
      MPI_Barrier(communicator);
      session.reset_statistics();
      start = Clock::now();
    }
    const double loss = trainer.step(step);
    smoothed = step == 0 ? loss : 0.9 * smoothed + 0.1 * loss;
    if (step >= options.steps - tail) {
      tail_loss += loss / tail;
    }
    Progress now{.step = step + 1, .steps = options.steps, .loss = smoothed};
    if (const int measured = step + 1 - warm_up; measured > 0) {
      now.ms_per_step = milliseconds_since(start) / measured;
      now.bytes_sent_per_step = static_cast<double>(session.statistics().all().bytes_sent) / measured;
    }
    progress(now);
  }

  RunResult result;
  result.policy = name;
  result.seed = options.seed;
  result.measured_steps = options.steps - warm_up;
  const double steps = result.measured_steps, elapsed_ms = milliseconds_since(start);
  const gradwire::SessionStatistics statistics = session.statistics();
  result.transport = statistics.transport;
  const auto all = statistics.all(), compressed = statistics.compressed();
  const std::array own{tail_loss,
                       all.ratio(),
                       compressed.ratio(),
                       static_cast<double>(all.bytes_sent) / steps,
                       elapsed_ms / steps,
                       trainer.communication_alone_ms(),
                       statistics.exposed_seconds * 1e3 / steps};
  const auto sums = sum_over_ranks(own, communicator);
  const std::array members{&result.train_loss,          &result.ratio,       &result.ratio_compressed,
                           &result.bytes_sent_per_step, &result.ms_per_step, &result.communication_ms,
                           &result.exposed_comm_ms};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    *members[i] = sums[i] / session.world_size();
  }
  count_parameters(trainer.model(), result);
  result.held_out_loss =
      held_out_loss(trainer.model(), text, options, session.rank(), session.world_size(), communicator);
  return result;
}

}  // namespace char_lm
