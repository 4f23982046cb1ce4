// Times a step with the adapter for LibTorch, with the model of tests/systems/torch_c10d/step_time.py, for comparison
// with the PyTorch backend.
#include <mpi.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/torch.hpp"

namespace {

constexpr int kWidth = 1024;

void measure(const char* codec, int steps) {
  namespace nn = torch::nn;
  at::set_num_threads(1);
  torch::manual_seed(7);
  nn::Sequential model;
  for (int layer = 0; layer < 4; ++layer) {
    model->push_back(nn::Linear(kWidth, kWidth));
    model->push_back(nn::ReLU());
  }
  model->push_back(nn::Linear(kWidth, 10));
  auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, gradwire::Policy::uniform(gradwire::CodecSpec(codec)));
  gradwire::torch::Adapter sync(session, model);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01));
  const auto inputs = torch::randn({64, kWidth});
  const auto labels = torch::randint(0, 10, {64});
  std::vector<double> times;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    nn::functional::cross_entropy(model->forward(inputs), labels).backward();
    sync.finish();
    optimizer.step();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    std::printf("adapter %s: %.1f ms a step\n", codec, times[static_cast<std::size_t>(steps) / 2]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  int status = 0;
  try {
    measure(argc > 1 ? argv[1] : "int8", std::max(argc > 2 ? std::atoi(argv[2]) : 120, 1));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_torch_step: %s\nusage: bench_torch_step [CODEC [STEPS]]\n", error.what());
    status = 1;
  }
  status == 0 ? MPI_Finalize() : MPI_Abort(MPI_COMM_WORLD, 1);
  return status;
}
