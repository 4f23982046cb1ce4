// Times an 8-byte MPI_Allreduce against PMPI_Allreduce, in alternating loops: the difference is what the preload adds
// to a call that it forwards. Without a preload both names are one function, so the same program shows the noise.
//
//   bench_drop_in [CALLS] [PAIRS] [self]    defaults: 1000000 calls per loop, 11 pairs of loops; self: on MPI_COMM_SELF
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/support/samples.hpp"

namespace {

using gradwire::bench::median;

using Clock = std::chrono::steady_clock;
using AllReduce = int (*)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);

// Returns nanoseconds per call.
double time_loop(AllReduce all_reduce, long calls, MPI_Comm comm) {
  double value = 1;
  double sum = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Clock::now();
  for (long i = 0; i < calls; ++i) {
    all_reduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / static_cast<double>(calls);
}

struct Comparison {
  double first = 0;
  double second = 0;
  double difference = 0;  // median over the pairs
};

Comparison compare(AllReduce first, AllReduce second, long calls, int pairs, MPI_Comm comm) {
  std::vector<double> firsts;
  std::vector<double> seconds;
  std::vector<double> differences;
  for (int pair = 0; pair < pairs; ++pair) {
    const bool turned = pair % 2 != 0;
    const double a = time_loop(turned ? second : first, calls, comm);
    const double b = time_loop(turned ? first : second, calls, comm);
    firsts.push_back(turned ? b : a);
    seconds.push_back(turned ? a : b);
    differences.push_back(firsts.back() - seconds.back());
  }
  return {median(firsts), median(seconds), median(differences)};
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long calls = argc > 1 ? std::atol(argv[1]) : 1000000;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 11;
  const bool self = argc > 3 && std::string(argv[3]) == "self";
  MPI_Comm comm = self ? MPI_COMM_SELF : MPI_COMM_WORLD;
  time_loop(&MPI_Allreduce, 1000, comm);
  const Comparison added = compare(&MPI_Allreduce, &PMPI_Allreduce, calls, pairs, comm);
  const Comparison noise = compare(&PMPI_Allreduce, &PMPI_Allreduce, calls, pairs, comm);
  if (rank == 0) {
    std::printf("8-byte all-reduce on %d ranks, %ld calls a loop, %d pairs, medians, ns a call\n", self ? 1 : size,
                calls, pairs);
    std::printf("  MPI_ %.1f  PMPI_ %.1f  added %.1f\n", added.first, added.second, added.difference);
    std::printf("  the same twice: %.1f and %.1f, difference %.1f\n", noise.first, noise.second, noise.difference);
  }
  MPI_Finalize();
}
