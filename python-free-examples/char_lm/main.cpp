// char_lm: trains a small character-level transformer on every rank's share of a text, with gradients all-reduced by
// gradwire while the backward pass goes on. With several policies it trains the same model from the same seed with
// each, one after the other, and compares them.
//
//   mpirun -np 4 char_lm --policies dense,int8 --link 1Gbit/s
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "conclusions.hpp"
#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "policies.hpp"
#include "report.hpp"
#include "text.hpp"
#include "training.hpp"

namespace {

constexpr double kHeldOutFraction = 0.1;

struct Options {
  char_lm::TrainingOptions training;
  std::vector<std::filesystem::path> text;
  std::vector<std::string> policies;  // names, see policies.hpp
  std::string policy_file;
  char_lm::PolicyOptions named;
  int seeds = 1;
  gradwire::Policy::Batch batch{.scaling = gradwire::BatchScaling::square_root};  // the optimizer is AdamW
  std::string json;
  char_lm::ProgressStyle progress = char_lm::ProgressStyle::lines;
};

void add_policy_options(CLI::App& app, char_lm::PolicyOptions& options) {
  app.add_option("--warm-up", options.warm_up,
                 "Share of the steps that codecs with error feedback (below 5 bits, topk) begin with int8")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--adam-guard,!--no-adam-guard", options.adam_guard,
               "Freeze Adam's second moment after that warm-up (default: yes)");
  app.add_option("--local-from", options.local_from,
                 "Share of the steps before local steps begin; gradients travel as int8 until then")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--small", options.small, "Tensors of fewer bytes travel as bf16; 0: like all others")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--second-hop", options.second_hop,
                 "Codec of the owner's encoding (default: as the policy's codec has it)");
  app.add_option("--chunk", options.chunk, "What travels as one frame, bytes on the wire (default: as fits)")
      ->check(CLI::Range(1024, 1 << 30));
  app.add_option("--decay", options.decay, "What a residual counts a step, or an exchange, later; above 0, at most 1")
      ->capture_default_str();
  app.add_option("--outer-lr", options.outer.learning_rate, "Of every(STEPS)+CODEC: the outer learning rate")
      ->capture_default_str();
  app.add_option("--outer-momentum", options.outer.momentum, "Of every(STEPS)+CODEC: the outer momentum")
      ->capture_default_str();
}

void add_options(CLI::App& app, Options& options) {
  auto& training = options.training;
  app.add_option("--text", options.text, "Files to learn from (default: the licence texts of this Debian system)");
  auto* policies =
      app.add_option("--policies,--codec", options.policies,
                     "What to train with, one run each: dense, dense+frozen, auto, a codec such as int8, local steps "
                     "such as every(8) or every(30)+int8, or a policy file x.toml (default: dense,int8)");
  policies->delimiter(',');
  app.option_defaults()->take_last();  // scripts pass defaults that a user overrides
  app.add_option("--policy", options.policy_file, "One run, with this policy file")
      ->check(CLI::ExistingFile)
      ->excludes(policies);
  add_policy_options(app, options.named);
  app.add_option("--precondition", training.precondition,
                 "Encode gradients in units of sqrt(v) + PHI rms of AdamW's second moment v: about 0.02 (default: as "
                 "they are)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("PHI");
  app.add_flag("--send-momentum", training.send_momentum,
               "Once the second moment is frozen, reduce momentum in place of gradients");
  app.add_option("--link", training.link,
                 "Emulate a slow link: a rate, or rate,latency, such as 1Gbit/s,50us; or links that change, such as "
                 "'100Mbit/s until 20s, 1Gbit/s'");
  app.add_option("--steps", training.steps, "Training steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", training.batch, "Windows per rank and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--context", training.context, "Characters per window")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--width", training.width, "Model width, a multiple of 4")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", training.layers, "Transformer blocks")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--lr", training.learning_rate, "Peak learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--advised-batch", training.advised_batch,
               "Accumulate as many micro-steps to each reduction as the session advises; --steps counts micro-steps");
  app.add_option("--target-exposed", options.batch.target_exposed,
                 "With --advised-batch: share of a step that exposed communication may take")
      ->check(CLI::Range(0.001, 0.999))
      ->capture_default_str();
  app.add_option("--max-accumulation", options.batch.max_accumulation, "With --advised-batch: micro-steps at most")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--evaluate-every", training.evaluate_every,
                 "Also evaluate the held-out part every so many micro-steps; the time for it does not count")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--iid", training.iid, "Every rank draws from the whole text, not from a part of its own");
  app.add_option("--seed", training.seed, "Of the start values and of the windows")->capture_default_str();
  app.add_option("--seeds", options.seeds, "Train with this many seeds, from --seed on, and pair each with dense")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the results to this file");
  app.add_option("--save-gradients", training.save_gradients,
                 "Write rank 0's gradients at three steps to this file (format: gradient_dump.hpp)");
  const std::map<std::string, char_lm::ProgressStyle> styles{{"bar", char_lm::ProgressStyle::bar},
                                                             {"lines", char_lm::ProgressStyle::lines},
                                                             {"none", char_lm::ProgressStyle::none}};
  app.add_option("--progress", options.progress, "bar, lines or none (default: lines)")
      ->transform(CLI::CheckedTransformer(styles))
      ->type_name("STYLE");
}

std::vector<char_lm::NamedPolicy> resolve_policies(const Options& options) {
  std::vector<char_lm::NamedPolicy> policies;
  if (!options.policy_file.empty()) {
    policies.push_back(char_lm::policy_of_file(options.policy_file));
  } else {
    for (const std::string& name : options.policies) {
      policies.push_back(char_lm::policy_named(name, options.named, options.training.steps));
    }
  }
  if (options.training.send_momentum && std::none_of(policies.begin(), policies.end(), [](const auto& each) {
        return each.freeze_second_moment_at > 0;
      })) {
    throw gradwire::Error(
        gradwire::ErrorCode::invalid_argument,
        "--send-momentum: no policy freezes the second moment; give topk, int2, sign or dense+frozen, a "
        "warm-up, and no --no-adam-guard");
  }
  for (char_lm::NamedPolicy& each : policies) {
    if (options.training.advised_batch && !each.policy.batch) {
      each.policy.batch = options.batch;
    }
  }
  return policies;
}

void run(const Options& options, int rank, int world_size) {
  const auto policies = resolve_policies(options);
  const auto files = options.text.empty() ? char_lm::licence_files() : options.text;
  const char_lm::Text text =
      char_lm::load_text(files, kHeldOutFraction, static_cast<std::size_t>(options.training.context), world_size);
  if (rank == 0) {
    char_lm::print_introduction(text, options.training, world_size);
  }

  std::vector<char_lm::RunResult> rows;
  for (int seed = 0; seed < options.seeds; ++seed) {
    for (const char_lm::NamedPolicy& each : policies) {
      char_lm::TrainingOptions training = options.training;
      training.seed += static_cast<std::uint64_t>(seed);
      training.freeze_second_moment_at = each.freeze_second_moment_at;
      training.settled_at = each.settled_at;
      training.precondition = each.local_steps ? 0 : training.precondition;  // scales are those of gradients
      char_lm::ProgressPrinter progress(each.name, rank == 0 ? options.progress : char_lm::ProgressStyle::none);
      rows.push_back(char_lm::train(each.name, each.policy, text, training, MPI_COMM_WORLD, progress));
    }
  }
  if (rank != 0) {
    return;
  }
  if (options.seeds == 1) {
    char_lm::print_table(rows, world_size);
    for (const std::string& sentence : char_lm::conclude(rows, options.training.link)) {
      std::printf("%s\n", sentence.c_str());
    }
  } else {
    char_lm::print_paired(char_lm::pair_losses(rows));
  }
  if (!options.json.empty()) {
    char_lm::write_json(options.json, rows, text, options.training, world_size);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int thread_level = 0, rank = 0, world_size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);

  Options options;
  options.policies = {"dense", "int8"};
  CLI::App app{"Trains a character-level transformer over MPI with compressed gradients"};
  add_options(app, options);
  try {
    app.parse(argc, argv);
    if (options.training.width % options.training.heads != 0) {
      throw CLI::ValidationError("--width", "must be a multiple of 4");
    }
  } catch (const CLI::ParseError& error) {
    const int code = rank == 0 ? app.exit(error) : error.get_exit_code();
    MPI_Finalize();
    return code;
  }
  try {
    run(options, rank, world_size);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "char_lm: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
