// ZeRO-1 (Rajbhandari et al., 2020): each rank keeps Adam's state only for its share of the parameters. A step is a
// reduce-scatter of gradients, compressed and with error feedback; Adam on the rank's share; and an all-gather of the
// parameters, exact or as bf16. The table at the end compares codecs, with and without the Adam guard: below four bits
// gradients arrive in rare, large portions, whose squares inflate the second moment and shrink every later step, so it
// is frozen once a warm-up with int8 gradients is over (1-bit Adam: Tang et al., 2021).
//
//   mpirun -np 4 zero1_adam [STEPS]
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/optimizer.hpp"

constexpr int kInputs = 64, kHidden = 256, kOutputs = 32, kBatch = 16, kEvaluation = 512;
constexpr std::size_t kParameters = std::size_t{kHidden} * (kInputs + 1) + std::size_t{kOutputs} * (kHidden + 1);
constexpr double kLearningRate = 1e-2, kBeta2 = 0.99;
constexpr double kWarmUp = 0.1;  // share of the steps

struct Setting {
  const char* gradients;   // codec of the reduce-scatter
  const char* parameters;  // codec of the all-gather
  bool guard;              // warm up with int8, then freeze the second moment
};
constexpr Setting kSettings[] = {{"exact", "exact", false},      {"int8", "bf16", false},
                                 {"int4", "bf16", false},        {"int2", "bf16", false},
                                 {"int2", "bf16", true},         {"topk(1%)+int8", "bf16", false},
                                 {"topk(1%)+int8", "bf16", true}};

/// A network of one hidden layer in one flat array: w1 [hidden][inputs], b1, w2 [outputs][hidden], b2.
class Network {
 public:
  Network(unsigned seed, float scale) : values_(kParameters) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < kParameters; ++i) {
      values_[i] = scale * normal(random) / std::sqrt(float(i < kSecond ? kInputs : kHidden));
    }
  }
  [[nodiscard]] std::vector<float>& values() { return values_; }

  void forward(const float* input, float* hidden, float* output) const {
    for (int h = 0; h < kHidden; ++h) {
      hidden[h] = std::tanh(dot(&values_[std::size_t(h) * kInputs], input, kInputs) + values_[kFirstBias + h]);
    }
    for (int o = 0; o < kOutputs; ++o) {
      output[o] = dot(&values_[kSecond + std::size_t(o) * kHidden], hidden, kHidden) + values_[kSecondBias + o];
    }
  }

  /// Adds one sample's gradient of half the squared error to `gradient`.
  void backward(const float* input, const float* hidden, const float* error, std::vector<float>& gradient) const {
    std::vector<float> delta(kHidden, 0.0F);
    for (int o = 0; o < kOutputs; ++o) {
      gradient[kSecondBias + o] += error[o];
      for (int h = 0; h < kHidden; ++h) {
        const std::size_t weight = kSecond + std::size_t(o) * kHidden + h;
        gradient[weight] += error[o] * hidden[h];
        delta[h] += error[o] * values_[weight];
      }
    }
    for (int h = 0; h < kHidden; ++h) {
      delta[h] *= 1 - hidden[h] * hidden[h];
      gradient[kFirstBias + h] += delta[h];
      for (int i = 0; i < kInputs; ++i) {
        gradient[std::size_t(h) * kInputs + i] += delta[h] * input[i];
      }
    }
  }

 private:
  static constexpr std::size_t kFirstBias = std::size_t{kHidden} * kInputs;
  static constexpr std::size_t kSecond = kFirstBias + kHidden;
  static constexpr std::size_t kSecondBias = kSecond + std::size_t{kOutputs} * kHidden;

  static float dot(const float* a, const float* b, int count) {
    float partial[8] = {};
    for (int i = 0; i < count; ++i) {
      partial[i % 8] += a[i] * b[i];
    }
    float sum = 0;
    for (const float p : partial) {
      sum += p;
    }
    return sum;
  }

  std::vector<float> values_;
};

/// Returns the mean squared error over `samples` new samples; adds gradients if `gradient` is not null.
double run_samples(const Network& network, const Network& planted, int samples, std::mt19937& random,
                   std::vector<float>* gradient) {
  std::normal_distribution<float> normal;
  std::vector<float> input(kInputs), hidden(kHidden), output(kOutputs), target(kOutputs);
  double loss = 0;
  for (int s = 0; s < samples; ++s) {
    for (float& x : input) {
      x = normal(random);
    }
    planted.forward(input.data(), hidden.data(), target.data());
    network.forward(input.data(), hidden.data(), output.data());
    for (int o = 0; o < kOutputs; ++o) {
      const float error = output[o] - target[o];
      loss += double(error) * error / kOutputs / samples;
      output[o] = error / float(samples);
    }
    if (gradient != nullptr) {
      network.backward(input.data(), hidden.data(), output.data(), *gradient);
    }
  }
  return loss;
}

struct Outcome {
  double loss = 0;
  gradwire::Statistics gradients, parameters;
};

Outcome train(const Setting& setting, int steps) {
  auto communicator = gradwire::mpi::make_communicator(MPI_COMM_WORLD);
  const auto rank = std::size_t(communicator.rank());
  const auto world = std::size_t(communicator.world_size());
  std::vector<std::uint64_t> counts(world);
  for (std::size_t r = 0; r < world; ++r) {
    counts[r] = kParameters / world + (r < kParameters % world ? 1 : 0);
  }
  std::mt19937 data(1000 + unsigned(rank)), evaluation(3);
  const Network planted(1, 1.0F);
  Network network(2, 0.5F);
  const std::size_t first = rank * (kParameters / world) + std::min(rank, kParameters % world);
  // The master copy of this rank's share stays in f32, even if the all-gather rounds.
  std::vector<float> share(&network.values()[first], &network.values()[first] + counts[rank]);
  std::vector<float> gradient(kParameters), share_gradient(counts[rank]);
  gradwire::AdamW adam({.beta2 = kBeta2, .weight_decay = 0});
  adam.add("share", share, share_gradient);
  gradwire::FeedbackBuffer feedback(kParameters);
  Outcome outcome;
  const int warm_up = setting.guard ? int(kWarmUp * steps) : 0;
  for (int step = 0; step < steps; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    run_samples(network, planted, kBatch, data, &gradient);
    outcome.gradients.add(
        communicator.reduce_scatter(gradwire::view(gradient.data(), gradient.size()),
                                    gradwire::view(share_gradient.data(), share_gradient.size()), counts,
                                    {.codec = gradwire::CodecSpec::parse(step < warm_up ? "int8" : setting.gradients),
                                     .reduction = gradwire::Reduction::mean,
                                     .feedback = &feedback}));
    if (warm_up > 0 && step == warm_up) {
      adam.freeze_second_moment();
    }
    adam.set_learning_rate(kLearningRate * (1 - double(step) / steps));
    adam.step({});  // no session: every step counts
    outcome.parameters.add(communicator.all_gather(gradwire::view(share.data(), share.size()),
                                                   gradwire::view(network.values().data(), kParameters), counts,
                                                   {.codec = gradwire::CodecSpec::parse(setting.parameters)}));
  }
  outcome.loss = run_samples(network, planted, kEvaluation, evaluation, nullptr);
  return outcome;
}

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  if (rank == 0) {
    std::printf("ZeRO-1 Adam, %zu parameters, %d steps\n%-15s %-10s %-6s %10s %9s %9s\n", kParameters, steps,
                "gradients", "parameters", "guard", "final loss", "ratio g", "ratio p");
  }
  for (const Setting& setting : kSettings) {
    const Outcome outcome = train(setting, steps);
    if (rank == 0) {
      std::printf("%-15s %-10s %-6s %10.6f %9.2f %9.2f\n", setting.gradients, setting.parameters,
                  setting.guard ? "yes" : "no", outcome.loss, outcome.gradients.ratio(), outcome.parameters.ratio());
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
}
