// A job that prints its counts, and lives until it is told to end: job FILE [plain]. With `plain` it does not use
// gradwire itself, for a drop-in.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

namespace {

constexpr int kSteps = 20;
constexpr std::size_t kElements = 300'000;

void train(int rank) {
  std::vector<float> embedding(kElements, 0.5F);
  std::vector<float> layers(kElements / 3, 0.25F);
  auto session = gradwire::mpi::make_session(
      MPI_COMM_WORLD, gradwire::Policy::parse("[defaults]\ncodec = \"int8\"\n[[rule]]\nmatch = \"emb*\"\n"
                                              "codec = \"int4\"\n"));
  const auto first = session.add("embedding", gradwire::view(embedding.data(), embedding.size()));
  const auto second = session.add("layers", gradwire::view(layers.data(), layers.size()));
  for (int step = 0; step < kSteps; ++step) {
    session.ready(second);
    session.ready(first);
    session.finish();
  }
  const gradwire::SessionStatistics statistics = session.statistics();
  const gradwire::Statistics all = statistics.all();
  std::printf("rank %d steps %llu in %llu sent %llu\n", rank, static_cast<unsigned long long>(statistics.steps),
              static_cast<unsigned long long>(all.bytes_in), static_cast<unsigned long long>(all.bytes_sent));
}

void reduce(int rank) {
  std::vector<float> values(kElements, 0.5F);
  for (int step = 0; step < kSteps; ++step) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  std::printf("rank %d calls %d in %zu\n", rank, kSteps, kSteps * kElements * sizeof(float));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 2 && std::strcmp(argv[2], "plain") == 0) {
    reduce(rank);
  } else {
    train(rank);
  }
  std::fflush(stdout);
  for (int i = 0; argc > 1 && i < 600 && !std::filesystem::exists(argv[1]); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  MPI_Finalize();
  return 0;
}
