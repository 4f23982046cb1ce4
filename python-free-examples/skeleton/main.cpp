// A training job over MPI: each rank has data of its own, and gradwire averages the gradients. Replace compute() and
// the update by your own.
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

namespace {

// Writes the gradient of this rank's loss, and returns that loss: the weights should become `target`.
double compute(const std::vector<float>& weights, float target, std::vector<float>& gradient) {
  double loss = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    gradient[i] = weights[i] - target;
    loss += 0.5 * gradient[i] * gradient[i];
  }
  return loss / static_cast<double>(weights.size());
}

void train(const gradwire::Policy& policy) {
  std::vector<float> weights(1'000'000);
  std::vector<float> gradient(weights.size());
  auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, policy);
  const auto id = session.add("weights", gradwire::view(gradient.data(), gradient.size()));
  session.broadcast(gradwire::view(weights.data(), weights.size()));  // the same start on every rank
  for (int step = 1; step <= 50; ++step) {
    const double loss = compute(weights, static_cast<float>(session.rank() + 1), gradient);
    session.ready(id);
    session.finish();  // from here on `gradient` is the mean of all ranks
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] -= 0.1F * gradient[i];
    }
    if (session.rank() == 0 && step % 10 == 0) {
      std::printf("step %d, loss of rank 0: %.4f\n", step, loss);
    }
  }
  if (session.rank() == 0) {
    std::printf("%s\n", session.statistics().to_text().c_str());
  }
}

}  // namespace

// train [POLICY.toml]
int main(int argc, char** argv) {
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);  // so that gradients travel during the backward pass
  try {
    train(argc > 1 ? gradwire::Policy::load(argv[1]) : gradwire::Policy());
  } catch (const gradwire::Error& error) {  // such as a policy that cannot be read
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);  // ends all ranks
  }
  MPI_Finalize();
}
