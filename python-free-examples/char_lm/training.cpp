#include "training.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <utility>

#include "gradient_recorder.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/torch.hpp"
#include "model.hpp"
#include "optimizer.hpp"

namespace char_lm {
namespace {

constexpr std::uint64_t kLargeTensorBytes = 64 << 10;
constexpr std::size_t kWindowsTogether = 8;

using Clock = std::chrono::steady_clock;
using Batch = std::pair<torch::Tensor, torch::Tensor>;  // inputs and targets, [batch, context]

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Returns windows of `context` + 1 symbols that start at `starts`: the inputs, and the same one symbol later.
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

/// Draws random windows of one rank's part of the text; the same sequence for the same seed and rank.
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

/// Rises linearly over the first tenth, then falls to zero by half a cosine, so that the losses at the end have little
/// noise and can be compared.
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

/// Returns the mean loss over the whole held-out part. The ranks share its windows, which each evaluates in small
/// batches.
double held_out_loss(Transformer& model, const Text& text, const TrainingOptions& options, int rank, int world_size,
                     MPI_Comm communicator) {
  torch::NoGradGuard no_grad;
  const auto context = static_cast<std::size_t>(options.context);
  const auto held_out = text.held_out();
  const std::size_t windows = (held_out.size() - 1) / context;
  double loss = 0, count = 0;
  std::vector<std::size_t> starts;
  for (auto w = static_cast<std::size_t>(rank); w < windows; w += static_cast<std::size_t>(world_size)) {
    starts.push_back(w * context);
    if (starts.size() == kWindowsTogether || w + static_cast<std::size_t>(world_size) >= windows) {
      const auto [inputs, targets] = make_batch(held_out, starts, options.context);
      const auto here = static_cast<double>(starts.size());
      loss += here * model->loss(inputs, targets).item<double>();
      count += here;
      starts.clear();
    }
  }
  const auto total = sum_over_ranks(std::array{loss, count}, communicator);
  return total[0] / total[1];
}

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

/// Model, optimizer and session of one run.
class Trainer {
 public:
  Trainer(const gradwire::Policy& policy, const Text& text, const TrainingOptions& options, MPI_Comm communicator)
      : options_(options),
        communicator_(communicator),
        model_(make_model(text, options)),
        optimizer_(model_, options),
        session_(gradwire::mpi::make_session(
            gradwire::make_emulated(gradwire::mpi::make_transport(communicator), options.link), policy)),
        sync_(session_, model_, scales()),
        sampler_(options.iid ? text.training() : text.shard(session_.rank(), session_.world_size()), options,
                 session_.rank()),
        recorder_(options, session_.rank()) {
    if (options.send_momentum) {
      sync_.before_ready(
          [this](const std::string& name, std::span<float> gradient) { optimizer_.adamw().to_send(name, gradient); });
    }
  }

  /// Makes one step of `micro_steps`, of which the first is micro-step `done`. Returns this rank's mean loss before it.
  double step(int done, int micro_steps, double learning_rate_factor) {
    optimizer_.adamw().set_learning_rate(learning_rate_factor * learning_rate_at(done, options_));
    if (options_.freeze_second_moment_at > 0 && done >= options_.freeze_second_moment_at) {
      guard();
    }
    optimizer_.zero_grad();
    double sum = 0;
    for (int micro = 0; micro + 1 < micro_steps; ++micro) {
      const auto no_sync = sync_.no_sync();
      sum += accumulate(micro_steps);
    }
    if (recorder_.wants(done)) {
      const auto no_sync = sync_.no_sync();  // finish() passes the gradients on
      sum += accumulate(micro_steps);
      recorder_.record(model_);
    } else {
      sum += accumulate(micro_steps);
    }
    optimizer_.step(sync_.finish());
    return sum / micro_steps;
  }

  /// Returns the milliseconds that the all-reduce of one step takes when no backward pass hides it: the median of a
  /// few.
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
  gradwire::torch::Adapter::Scales scales() {
    return options_.precondition > 0 ? [this](const std::string& name) { return optimizer_.adamw().scale(name); }
                                     : gradwire::torch::Adapter::Scales();
  }

  void guard() {
    if (!options_.send_momentum) {
      optimizer_.adamw().freeze_second_moment();
    } else {
      optimizer_.adamw().send_momentum();
    }
  }

  // Adds one micro-step's share of the mean gradient. Returns its loss.
  double accumulate(int micro_steps) {
    const auto [inputs, targets] = sampler_.next();
    const torch::Tensor loss = model_->loss(inputs, targets);
    (loss / micro_steps).backward();
    return loss.item<double>();
  }

  TrainingOptions options_;
  MPI_Comm communicator_;
  Transformer model_;
  Optimizer optimizer_;  // declared before the session, which reads its scales
  gradwire::Session session_;
  gradwire::torch::Adapter sync_;
  Sampler sampler_;
  GradientRecorder recorder_;
};

/// Controls one run: the micro-steps of each step, clocks, progress.
class Run {
 public:
  Run(const std::string& name, const gradwire::Policy& policy, const Text& text, const TrainingOptions& options,
      MPI_Comm communicator, const std::function<void(const Progress&)>& progress)
      : text_(text),
        options_(options),
        communicator_(communicator),
        progress_(progress),
        begun_(Clock::now()),
        trainer_(policy, text, options, communicator),
        warm_up_(std::min(5, options.steps / 2)) {
    result_.policy = name;
    result_.seed = options.seed;
    result_.precondition = options.precondition;
  }

  RunResult train() {
    while (done_ < options_.steps) {
      if (measured_from_ < 0 && done_ >= warm_up_) {
        begin_measuring();
      }
      if (settled_from_ < 0 && measured_from_ >= 0 && done_ >= options_.settled_at) {
        settled_from_ = done_;
        settled_bytes_ = bytes_sent();
      }
      step();
      if (options_.evaluate_every > 0 && done_ < options_.steps && done_ / options_.evaluate_every > evaluated_) {
        evaluated_ = done_ / options_.evaluate_every;
        look();
      }
    }
    finish();
    return result_;
  }

 private:
  void begin_measuring() {
    MPI_Barrier(communicator_);
    exposed_before_ = session().statistics().exposed_seconds;
    bytes_before_ = bytes_sent();
    session().reset_statistics();
    measured_from_ = done_;
    measured_since_ms_ = training_ms();
  }

  void step() {
    gradwire::BatchAdvice advice;
    const bool changed = follow(advice);
    const int micro_steps = std::min(static_cast<int>(advice.accumulation), options_.steps - done_);
    const double loss = trainer_.step(done_, micro_steps, advice.learning_rate_factor);
    done_ += micro_steps;
    ++result_.reductions;
    const int tail = std::max(1, options_.steps / 10);
    smoothed_ = smoothed_ == 0 ? loss : 0.9 * smoothed_ + 0.1 * loss;
    if (done_ > options_.steps - tail) {
      tail_loss_ += loss * micro_steps;
      tail_count_ += micro_steps;
    }
    Progress now{.step = done_, .steps = options_.steps, .loss = smoothed_};
    if (const int measured = done_ - measured_from_; measured_from_ >= 0) {
      now.ms_per_step = (training_ms() - measured_since_ms_) / measured;
      now.bytes_sent_per_step = static_cast<double>(session().statistics().all().bytes_sent) / measured;
    }
    now.changed = changed ? &advice : nullptr;
    progress_(now);
  }

  /// Sets `advice` to the session's advice for the next step, and returns whether it has changed.
  bool follow(gradwire::BatchAdvice& advice) {
    if (!options_.advised_batch) {
      return false;
    }
    advice = session().batch_advice();
    const bool changed = result_.advised.empty() || result_.advised.back().advice.accumulation != advice.accumulation;
    if (changed) {
      result_.advised.push_back({done_, advice});
    }
    return changed;
  }

  /// Evaluates the held-out part. Each rank uses its own model, since synchronising them would change the training. The
  /// time of this does not count.
  void look() {
    const auto start = Clock::now();
    RunResult::Point point{.micro_steps = done_, .reductions = result_.reductions, .seconds = training_ms() / 1e3};
    const double exposed = exposed_before_ + session().statistics().exposed_seconds;
    const auto sums = sum_over_ranks(std::array{exposed, bytes_sent()}, communicator_);
    point.exposed_seconds = sums[0] / session().world_size();
    point.bytes_sent = sums[1] / session().world_size();
    point.held_out_loss =
        held_out_loss(trainer_.model(), text_, options_, session().rank(), session().world_size(), communicator_);
    result_.curve.push_back(point);
    paused_ms_ += milliseconds_since(start);
  }

  void finish() {
    result_.measured_steps = options_.steps - measured_from_;
    const double steps = result_.measured_steps, elapsed_ms = training_ms() - measured_since_ms_;
    const gradwire::SessionStatistics statistics = session().statistics();
    const double settled_steps = options_.steps - settled_from_, settled_bytes = bytes_sent() - settled_bytes_;
    session().sync_parameters();  // one model, if the policy let ranks' models differ
    look();
    result_.held_out_loss = result_.curve.back().held_out_loss;
    result_.seconds = result_.curve.back().seconds;
    result_.transport = statistics.transport;
    result_.switches = statistics.switches;
    for (const auto& group : statistics.groups) {
      result_.codecs.push_back(group.codec);
    }
    const auto all = statistics.all(), compressed = statistics.compressed();
    const std::array own{tail_loss_ / tail_count_,
                         all.ratio(),
                         compressed.ratio(),
                         static_cast<double>(all.bytes_sent) / steps,
                         bytes_sent(),
                         settled_from_ < 0 ? 0 : settled_bytes / settled_steps,
                         elapsed_ms / steps,
                         trainer_.communication_alone_ms(),
                         statistics.exposed_seconds * 1e3 / steps};
    const auto sums = sum_over_ranks(own, communicator_);
    double settled_bytes_per_step = 0;
    const std::array members{
        &result_.train_loss,     &result_.ratio,          &result_.ratio_compressed, &result_.bytes_sent_per_step,
        &result_.bytes_sent,     &settled_bytes_per_step, &result_.ms_per_step,      &result_.communication_ms,
        &result_.exposed_comm_ms};
    for (std::size_t i = 0; i < sums.size(); ++i) {
      *members[i] = sums[i] / session().world_size();
    }
    count_parameters(trainer_.model(), result_);
    result_.bits_per_element_and_hop = bits_per_element_and_hop(settled_bytes_per_step);
    result_.bits_per_element_and_hop_in_whole = bits_per_element_and_hop(result_.bytes_sent / options_.steps);
  }

  /// Returns the bytes sent by this rank since the run began.
  double bytes_sent() { return bytes_before_ + static_cast<double>(session().statistics().all().bytes_sent); }

  /// Counts two hops; in each of them a rank sends all elements except those of its own share.
  double bits_per_element_and_hop(double bytes_per_step) {
    const double ranks = session().world_size();
    return ranks == 1 ? 0 : 8 * bytes_per_step / (2 * (ranks - 1) / ranks * static_cast<double>(result_.parameters));
  }

  gradwire::Session& session() { return trainer_.session(); }
  [[nodiscard]] double training_ms() const { return milliseconds_since(begun_) - paused_ms_; }

  const Text& text_;
  const TrainingOptions& options_;
  MPI_Comm communicator_;
  const std::function<void(const Progress&)>& progress_;
  Clock::time_point begun_;
  Trainer trainer_;
  RunResult result_;
  int warm_up_;
  int done_ = 0;  // micro-steps
  int evaluated_ = 0;
  int measured_from_ = -1;
  int settled_from_ = -1;
  double bytes_before_ = 0, settled_bytes_ = 0;
  double measured_since_ms_ = 0, paused_ms_ = 0, exposed_before_ = 0;
  double smoothed_ = 0, tail_loss_ = 0, tail_count_ = 0;
};

}  // namespace

RunResult train(const std::string& name, const gradwire::Policy& policy, const Text& text,
                const TrainingOptions& options, MPI_Comm communicator,
                const std::function<void(const Progress&)>& progress) {
  torch::set_num_threads(1);  // the ranks share the cores
  return Run(name, policy, text, options, communicator, progress).train();
}

}  // namespace char_lm
