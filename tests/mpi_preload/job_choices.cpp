// Makes calls that are passed on or compressed according to measurements, among others that never are.
#include <chrono>
#include <thread>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
namespace {

constexpr int kRounds = 60;

std::uint64_t hash_of(std::uint64_t hash, const std::vector<float>& values) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return hash;
}

std::uint64_t reduce(std::uint64_t hash, int count, MPI_Comm comm, bool whole) {
  const std::vector<float> mine = values_of(g_rank, static_cast<std::size_t>(count));
  std::vector<float> sums(mine.size());
  MPI_Allreduce(mine.data(), sums.data(), count, MPI_FLOAT, MPI_SUM, comm);
  if (whole) {
    compare(sums.data(), 0, sums.size(), g_size);
  }
  JOB_CHECK(same_everywhere(sums, comm));
  return hash_of(hash, sums);
}

}  // namespace

// Makes 5 calls on all ranks and one on half of them in each round; prints a hash of all results.
void measured() {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, g_rank, &half);
  std::uint64_t hash = 14695981039346656037U;
  for (int round = 0; round < kRounds; ++round) {
    hash = reduce(hash, 300, MPI_COMM_WORLD, true);            // below the floor
    hash = reduce(hash, 1500, MPI_COMM_WORLD, true);           // one class
    hash = reduce(hash, 16000 + round, MPI_COMM_WORLD, true);  // another class, with changing sizes
    hash = reduce(hash, 9000, half, false);
    auto most = static_cast<float>(g_rank);
    std::vector<float> many(5000, most);
    MPI_Allreduce(MPI_IN_PLACE, many.data(), 5000, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    JOB_CHECK(many[4999] == static_cast<float>(g_size - 1));
    std::vector<double> doubles = ramp<double>(5000);
    MPI_Allreduce(MPI_IN_PLACE, doubles.data(), 5000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    JOB_CHECK(doubles[4999] == ramp_sum<double>(4999));
  }
  MPI_Comm_free(&half);
  if (g_rank == 0) {
    std::printf("hash %llu\n", static_cast<unsigned long long>(hash));
  }
}

// Two threads each use a duplicate of their own. Ranks reach the two in different orders.
void crossed_threads() {
  MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  const auto work = [&](int which) {
    if (g_rank % 2 != which) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    for (int call = 0; call < 12; ++call) {
      reduce(0, kCount, comms[which], true);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  MPI_Comm_free(&comms[0]);
  MPI_Comm_free(&comms[1]);
}

}  // namespace job
