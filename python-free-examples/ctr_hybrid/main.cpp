// ctr_hybrid predicts clicks from categories and numbers, as recommendation systems do: nearly all parameters are
// embeddings, of which a batch uses few. It trains the same model in three ways (trainer.hpp) and compares them.
//
//   mpirun -np 4 ctr_hybrid --link 1Gbit/s,50us
#include <mpi.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "data.hpp"
#include "report.hpp"
#include "training.hpp"

namespace {

struct Options {
  std::vector<std::string> modes{"synchronous", "hybrid", "asynchronous"};
  ctr_hybrid::TrainingOptions training;
  ctr_hybrid::GeneratorOptions generator;
  std::uint64_t staleness = 4;
  std::string codec = "exact", policy;
  int seeds = 1;
  std::string data, json, markdown;
};

void add_options(CLI::App& app, Options& options) {
  ctr_hybrid::TrainingOptions& training = options.training;
  app.add_option("--modes", options.modes, "Ways to train, one run each")
      ->delimiter(',')
      ->check(CLI::IsMember({"synchronous", "hybrid", "asynchronous"}))
      ->capture_default_str();
  app.add_option("--link", training.trainer.link,
                 "Emulate a link of each rank, such as 1Gbit/s,50us; a session and tables share it");
  app.add_option("--data", options.data, "Learn from this file, in Criteo's format (default: generated samples)")
      ->check(CLI::ExistingFile);
  app.add_option("--categories", options.generator.categories, "Of each field")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("--fields", options.generator.fields, "Of generated samples")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--zipf", options.generator.zipf, "Exponent of the frequencies of generated categories")
      ->check(CLI::Range(0.0, 4.0))
      ->capture_default_str();
  app.add_option("--steps", training.steps, "Training steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", training.batch, "Samples a rank and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--width", training.trainer.width, "Elements of an embedding")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--lr", training.trainer.learning_rate, "Learning rate of Adagrad")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--staleness", options.staleness, "hybrid: bound on the age of rows, in steps")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--codec", options.codec, "hybrid: codec of rows and their gradients: exact, bf16, int8")
      ->capture_default_str();
  app.add_option("--policy", options.policy,
                 "hybrid: this policy file instead; a rule with sync = { rows = true, ... } must match the table "
                 "\"embeddings\", the others are for dense layers")
      ->check(CLI::ExistingFile)
      ->excludes("--staleness")
      ->excludes("--codec");
  app.add_option("--slow-rank", training.slow_rank_ms, "Milliseconds that the last rank needs longer for each step")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--evaluate-every", training.evaluate_every, "Steps between looks at held-out samples")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--held-out", training.held_out, "Samples to look at")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", training.trainer.seed, "Of start values and generated samples")->capture_default_str();
  app.add_option("--seeds", options.seeds, "Train with this many seeds, from --seed on")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the results to this file");
  app.add_option("--markdown", options.markdown, "Write the table to this file");
}

std::unique_ptr<ctr_hybrid::Data> make_data(const Options& options, std::uint64_t seed) {
  if (!options.data.empty()) {
    return ctr_hybrid::read_criteo(options.data, options.generator.categories);
  }
  ctr_hybrid::GeneratorOptions generator = options.generator;
  generator.seed = seed;
  return ctr_hybrid::make_generator(generator);
}

int run(const Options& options, int rank) {
  ctr_hybrid::Report report{.runs = {}, .options = options.training, .table = {}, .data = {}};
  MPI_Comm_size(MPI_COMM_WORLD, &report.ranks);
  for (int i = 0; i < options.seeds; ++i) {
    ctr_hybrid::TrainingOptions training = options.training;
    training.trainer.seed += static_cast<std::uint64_t>(i);
    const auto data = make_data(options, training.trainer.seed);
    report.table = ctr_hybrid::hybrid_table(*data, training.trainer);
    report.data = (options.data.empty() ? "generated samples" : options.data) + ", " + std::to_string(data->fields()) +
                  " fields, " + std::to_string(data->table_rows()) + " rows of " +
                  std::to_string(training.trainer.width) + ", " + std::to_string(options.seeds) + " seed(s)";
    for (const std::string& mode : options.modes) {
      report.runs.push_back(ctr_hybrid::train(mode, *data, training));
      if (rank == 0) {
        const ctr_hybrid::Run& done = report.runs.back();
        std::fprintf(stderr, "%s, seed %llu: %.0f samples/s, AUC %.4f\n", mode.c_str(),
                     static_cast<unsigned long long>(done.seed), done.samples_per_second, done.curve.back().auc);
      }
    }
  }
  if (rank == 0) {
    ctr_hybrid::print_table(report);
    if (!options.json.empty()) {
      ctr_hybrid::write_json(options.json, report);
    }
    if (!options.markdown.empty()) {
      ctr_hybrid::write_markdown(options.markdown, report);
    }
  }
  return 0;
}

int parse_and_run(int argc, char** argv, int rank) {
  Options options;
  CLI::App app{
      "Trains a click-through-rate model on every rank's samples: embeddings and dense layers, synchronous, "
      "hybrid or asynchronous."};
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return rank == 0 ? app.exit(error) : (error.get_exit_code() == 0 ? 0 : 2);
  }
  options.training.trainer.policy = options.policy.empty() ? ctr_hybrid::hybrid_policy(options.staleness, options.codec)
                                                           : gradwire::Policy::load(options.policy);
  return run(options, rank);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  int rank = 0;
  int status = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  torch::set_num_threads(1);  // one rank per core
  try {
    status = parse_and_run(argc, argv, rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ctr_hybrid: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
