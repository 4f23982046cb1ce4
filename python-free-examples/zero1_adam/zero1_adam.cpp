// ZeRO (Rajbhandari et al., 2020): each rank keeps Adam's state only for its share of the parameters. In stage 1 a rank
// makes the whole gradient first; in stage 2 each bucket of it is reduce-scattered as the backward pass makes it, so
// that a rank keeps its share only. Reduce-scatters are compressed, with error feedback; parameters are gathered exact
// or as bf16. The table compares codecs, with and without the Adam guard: below four bits gradients arrive in rare,
// large portions, whose squares inflate the second moment and shrink every later step, so it is frozen once a warm-up
// with int8 gradients is over (1-bit Adam: Tang et al., 2021).
//
//   mpirun -np 4 zero1_adam [STEPS] [STAGE]
//   mpirun -np 4 zero1_adam --memory STAGE CODEC RESIDUALS  peak memory beside its formula; none, f32 or bf16
//   zero1_adam --formula STAGE CODEC RESIDUALS RANKS        the formula alone
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/optimizer.hpp"
#include "network.hpp"

constexpr int kBatch = 16, kEvaluation = 512;
constexpr double kLearningRate = 1e-2, kBeta2 = 0.99;
constexpr double kWarmUp = 0.1;         // share of the steps
constexpr std::size_t kBucket = 16640;  // parameters, in trainings: two buckets
// The network whose memory is measured has 16.8 million parameters.
constexpr Shape kLarge{.inputs = 2048, .hidden = 4096, .outputs = 2048};
constexpr std::size_t kLargeBucket = std::size_t{1} << 20;

struct Setting {
  const char* gradients;   // codec of the reduce-scatters
  const char* parameters;  // codec of the all-gathers
  bool guard;              // warm up with int8, then freeze the second moment
  bool feedback = true;
  gradwire::ResidualDType residuals = gradwire::ResidualDType::f32;
};
constexpr Setting kSettings[] = {{"exact", "exact", false},      {"int8", "bf16", false},
                                 {"int4", "bf16", false},        {"int2", "bf16", false},
                                 {"int2", "bf16", true},         {"topk(1%)+int8", "bf16", false},
                                 {"topk(1%)+int8", "bf16", true}};

/// One bucket: its part of the network, and each rank's share of it.
struct Bucket {
  Part part;
  std::vector<std::uint64_t> counts;  // by rank
  std::size_t begin = 0;              // of this rank's share in the part
  std::size_t at = 0;                 // where that share begins among the rank's own
  std::unique_ptr<gradwire::FeedbackBuffer> feedback;
};

class Trainer {
 public:
  Trainer(Network& network, const Setting& setting, int stage, std::size_t bucket)
      : network_(network), setting_(setting), stage_(stage), adam_({.beta2 = kBeta2, .weight_decay = 0}) {
    const auto world = std::size_t(communicator_.world_size());
    const auto rank = std::size_t(communicator_.rank());
    std::size_t own = 0, largest = 0;
    for (const Part& part : network.parts(bucket)) {
      Bucket& made = buckets_.emplace_back(Bucket{.part = part, .counts = {}, .feedback = nullptr});
      for (std::size_t r = 0; r < world; ++r) {
        made.counts.push_back(part.count / world + (r < part.count % world ? 1 : 0));
        made.begin += r < rank ? made.counts.back() : 0;
      }
      made.at = own;
      own += made.counts[rank];
      largest = std::max(largest, part.count);
      if (setting.feedback) {
        made.feedback = std::make_unique<gradwire::FeedbackBuffer>(part.count, setting.residuals);
      }
    }
    gradient_.resize(stage == 1 ? network.values().size() : largest);
    share_.resize(own);  // the master copy stays in f32, even if the all-gathers round
    share_gradient_.resize(own);
    for (const Bucket& each : buckets_) {
      std::copy_n(&network.values()[each.part.first + each.begin], each.counts[rank], &share_[each.at]);
    }
    adam_.add("share", share_, share_gradient_);
  }

  void step(Batch& batch, const char* codec, double learning_rate) {
    for (Bucket& bucket : buckets_) {
      float* gradient = stage_ == 1 ? &gradient_[bucket.part.first] : gradient_.data();
      batch.backward(bucket.part, gradient);
      if (stage_ == 2) {
        reduce(bucket, gradient, codec);
      }
    }
    for (Bucket& bucket : buckets_) {
      if (stage_ == 1) {
        reduce(bucket, &gradient_[bucket.part.first], codec);
      }
    }
    adam_.set_learning_rate(learning_rate);
    adam_.step({});  // no session: every step counts
    for (const Bucket& bucket : buckets_) {
      parameters_.add(
          communicator_.all_gather(gradwire::view(&share_[bucket.at], bucket.counts[std::size_t(communicator_.rank())]),
                                   gradwire::view(&network_.values()[bucket.part.first], bucket.part.count),
                                   bucket.counts, {.codec = gradwire::CodecSpec::parse(setting_.parameters)}));
    }
  }
  void freeze_second_moment() { adam_.freeze_second_moment(); }

  [[nodiscard]] double gradient_ratio() const { return gradients_.ratio(); }
  [[nodiscard]] double parameter_ratio() const { return parameters_.ratio(); }

 private:
  void reduce(Bucket& bucket, float* gradient, const char* codec) {
    gradients_.add(communicator_.reduce_scatter(
        gradwire::view(gradient, bucket.part.count),
        gradwire::view(&share_gradient_[bucket.at], bucket.counts[std::size_t(communicator_.rank())]), bucket.counts,
        {.codec = gradwire::CodecSpec::parse(codec),
         .reduction = gradwire::Reduction::mean,
         .feedback = bucket.feedback.get()}));
  }

  Network& network_;
  Setting setting_;
  int stage_;
  gradwire::Communicator communicator_ = gradwire::mpi::make_communicator(MPI_COMM_WORLD);
  std::vector<Bucket> buckets_;
  std::vector<float> gradient_, share_, share_gradient_;
  gradwire::AdamW adam_;
  gradwire::Statistics gradients_, parameters_;
};

struct Outcome {
  double loss = 0, gradient_ratio = 0, parameter_ratio = 0;
};

Outcome train(const Setting& setting, int steps, int stage, int rank) {
  std::mt19937 data(1000 + unsigned(rank)), evaluation(3);
  const Network planted(Shape{}, 1, 1.0F);
  Network network(Shape{}, 2, 0.5F);
  Trainer trainer(network, setting, stage, kBucket);
  const int warm_up = setting.guard ? int(kWarmUp * steps) : 0;
  for (int step = 0; step < steps; ++step) {
    if (warm_up > 0 && step == warm_up) {
      trainer.freeze_second_moment();
    }
    Batch batch(network, planted, kBatch, data);
    trainer.step(batch, step < warm_up ? "int8" : setting.gradients, kLearningRate * (1 - double(step) / steps));
  }
  return {Batch(network, planted, kEvaluation, evaluation).loss(), trainer.gradient_ratio(), trainer.parameter_ratio()};
}

/// Bytes of a rank: parameters, gradients (stage 2: one bucket), residuals of the whole gradient, and of the rank's
/// share the master copy, the sum and Adam's two moments, all in f32 but for residuals in bf16.
double formula(double parameters, double ranks, int stage, double bucket, const std::string& residuals) {
  const double each = ranks == 1 || residuals == "none" ? 0 : residuals == "bf16" ? 2 : 4;
  return each * parameters + 4 * (parameters + (stage == 1 ? parameters : bucket) + 4 * parameters / ranks);
}

/// Prints a row, without a measured value if `measured` is 0.
void print_memory(int stage, int ranks, const char* codec, const char* residuals, double parameters, double measured) {
  constexpr double kMega = 1e6;
  std::printf("stage %d, %d ranks, %s, residuals %s: %.1f million parameters, formula %.1f MB", stage, ranks, codec,
              residuals, parameters / kMega,
              formula(parameters, ranks, stage, double(kLargeBucket), residuals) / kMega);
  measured > 0 ? std::printf(", measured %.1f MB\n", measured / kMega) : std::printf("\n");
}

/// A value of /proc/self/status in bytes.
double status_of(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (double kilobytes = 0; word == key && status >> kilobytes) {
      return 1024 * kilobytes;
    }
  }
  return 0;
}

void measure_memory(int stage, const char* codec, const char* residuals, int rank, int ranks) {
  std::mt19937 data(1000 + unsigned(rank));
  const Setting setting{
      codec, "exact", false, residuals != std::string("none"),
      residuals == std::string("bf16") ? gradwire::ResidualDType::bf16 : gradwire::ResidualDType::f32};
  // What MPI and gradwire need for any collective is no part of the formula.
  {
    const Network small_planted(Shape{}, 1, 1.0F);
    Network small(Shape{}, 2, 0.5F);
    Trainer trainer(small, setting, stage, kBucket);
    Batch batch(small, small_planted, 1, data);
    trainer.step(batch, codec, kLearningRate);
  }
  const Network planted(kLarge, 1, 1.0F);  // the data, which is no part of it either
  const double before = status_of("VmRSS:");
  Network network(kLarge, 2, 0.5F);
  const auto parameters = double(network.values().size());
  {
    Trainer trainer(network, setting, stage, kLargeBucket);
    for (int step = 0; step < 2; ++step) {
      Batch batch(network, planted, 1, data);
      trainer.step(batch, codec, kLearningRate);
    }
  }
  const double mine = status_of("VmHWM:") - before;
  double most = 0;
  MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    print_memory(stage, ranks, codec, residuals, parameters, most);
  }
}

int main(int argc, char** argv) {
  if (argc == 6 && argv[1] == std::string("--formula")) {
    const auto parameters = double(Network(kLarge, 2, 0.5F).values().size());
    print_memory(std::atoi(argv[2]), std::atoi(argv[5]), argv[3], argv[4], parameters, 0);
    return 0;
  }
  int rank = 0, ranks = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc == 5 && argv[1] == std::string("--memory")) {
    measure_memory(std::atoi(argv[2]), argv[3], argv[4], rank, ranks);
    MPI_Finalize();
    return 0;
  }
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300, stage = argc > 2 ? std::atoi(argv[2]) : 1;
  if (rank == 0) {
    std::printf("ZeRO-%d Adam, %zu parameters, %d steps\n%-15s %-10s %-6s %10s %9s %9s\n", stage,
                Network(Shape{}, 2, 0.5F).values().size(), steps, "gradients", "parameters", "guard", "final loss",
                "ratio g", "ratio p");
  }
  for (const Setting& setting : kSettings) {
    const Outcome outcome = train(setting, steps, stage, rank);
    if (rank == 0) {
      std::printf("%-15s %-10s %-6s %10.6f %9.2f %9.2f\n", setting.gradients, setting.parameters,
                  setting.guard ? "yes" : "no", outcome.loss, outcome.gradient_ratio, outcome.parameter_ratio);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
}
