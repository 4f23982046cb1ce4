// A job that goes on when a rank is killed. It looks for a vector by noisy gradients; each rank has noise of its own,
// and values that int4 drops in a step are added in the next. Kill a rank while it runs: `kill -9` one of the processes
// that it prints.
//
//   mpirun --enable-recovery -np 4 elastic_sgd [STEPS [CODEC [MILLISECONDS_PER_STEP [RANK@STEP ...]]]]
//
// RANK@STEP: that rank ends itself by SIGKILL in the middle of that step. Other arguments in this place:
// checkpoints=DIRECTORY: writes a checkpoint there every 50 steps, and a job that is started again goes on from the
// newest one. spares=K: the last K processes wait, and take the places of ranks that end. replicate=N: after every N
// steps another rank gets a copy of the values that a rank has dropped so far.
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

struct Arguments {
  std::uint64_t steps = 300;
  std::string codec = "int4";
  std::chrono::milliseconds computing{20};  // time that a real model would take
  std::vector<std::string> deaths;
  std::string checkpoints;
  std::uint32_t spares = 0, replicate = 0;
};

void train(const std::shared_ptr<gradwire::Processes>& processes, const Arguments& arguments) {
  constexpr std::size_t kParameters = 1 << 18;
  constexpr float kLearningRate = 0.05F;
  std::vector<float> wanted(kParameters), value(kParameters), gradient(kParameters);
  std::mt19937 same(1), own(1000 + processes->self());
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < kParameters; ++i) {
    wanted[i] = normal(same);
  }
  gradwire::Policy policy = gradwire::Policy::uniform(arguments.codec);
  policy.elastic = gradwire::Policy::Elastic{.replicate = arguments.replicate, .spares = arguments.spares};
  gradwire::Session session(processes, policy);
  const gradwire::TensorId id = session.add("vector", gradwire::view(gradient.data(), gradient.size()));
  std::printf("%s\n", processes->describe(processes->self()).c_str());
  std::fflush(stdout);

  session.on_world_change([&](const gradwire::WorldChange& change) {
    if (change.rank == 0) {  // in the new world
      for (const std::string& lost : change.lost_names) {
        std::printf("without %s: ", lost.c_str());
      }
      for (const std::string& joined : change.joined_names) {
        std::printf("with %s: ", joined.c_str());
      }
      std::printf("%d ranks go on, %.0f ms after that was noticed\n", change.world_size, 1000 * change.seconds);
      std::printf("kept: parameters, step %llu, and what the ranks that are left have yet to send\n",
                  static_cast<unsigned long long>(session.step()));
    }
    for (const auto& [rank, step] : change.residuals_kept) {
      std::printf("%s keeps what rank %d had yet to send after step %llu\n",
                  processes->describe(processes->self()).c_str(), rank, static_cast<unsigned long long>(step));
    }
    std::fflush(stdout);
  });

  const gradwire::View parameters = gradwire::view(value.data(), value.size());
  const gradwire::ConstView saved = parameters;
  if (!arguments.checkpoints.empty()) {
    const std::uint64_t step = session.restore(arguments.checkpoints, {&parameters, 1});
    if (session.rank() == 0) {
      std::printf("goes on from step %llu\n", static_cast<unsigned long long>(step));
    }
  }

  if (!session.share(parameters)) {  // a spare waits in share()
    std::printf("the job ended before this process was needed\n");
    return;
  }
  while (session.step() < arguments.steps) {
    const std::uint64_t step = session.step();
    for (std::size_t i = 0; i < kParameters; ++i) {
      gradient[i] = value[i] - wanted[i] + 0.01F * normal(own);
    }
    std::this_thread::sleep_for(arguments.computing);
    session.ready(id);
    for (const std::string& death : arguments.deaths) {
      if (death == std::to_string(processes->self()) + "@" + std::to_string(step)) {
        std::raise(SIGKILL);
      }
    }
    const gradwire::StepOutcome outcome = session.finish();
    if (outcome.repeat) {
      continue;  // computes the gradients of this step again, in the new world
    }
    double error = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      value[i] -= kLearningRate * gradient[i];
      error += std::pow(double(value[i]) - wanted[i], 2) / kParameters;
    }
    if (!arguments.checkpoints.empty() && (step + 1) % 50 == 0) {
      session.checkpoint(arguments.checkpoints, {&saved, 1});
    }
    if (session.rank() == 0 && ((step + 1) % 50 == 0 || outcome.world_changed)) {
      std::printf("step %llu: %d ranks, error %.3e\n", static_cast<unsigned long long>(step) + 1, session.world_size(),
                  error);
      std::fflush(stdout);
    }
  }
  session.confirm();  // from here on no rank's end can undo the last step: now a model may be written
}

int main(int argc, char** argv) {
  Arguments arguments;
  if (argc > 1) {
    arguments.steps = std::strtoull(argv[1], nullptr, 10);
  }
  if (argc > 2) {
    arguments.codec = argv[2];
  }
  if (argc > 3) {
    arguments.computing = std::chrono::milliseconds(std::atoi(argv[3]));
  }
  const std::string prefix = "checkpoints=";
  for (int i = 4; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(prefix, 0) == 0) {
      arguments.checkpoints = argument.substr(prefix.size());
    } else if (argument.rfind("spares=", 0) == 0) {
      arguments.spares = static_cast<std::uint32_t>(std::atoi(argument.c_str() + 7));
    } else if (argument.rfind("replicate=", 0) == 0) {
      arguments.replicate = static_cast<std::uint32_t>(std::atoi(argument.c_str() + 10));
    } else {
      arguments.deaths.push_back(argument);
    }
  }
  gradwire::mpi::elastic_main(argc, argv, [&](const auto& processes) { train(processes, arguments); });
}
