// A program with an exact session, whose sums MPI makes, and with a sum of its own in each step.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

namespace {

// Returns whether all sums are right.
bool train() {
  constexpr int kSteps = 40;  // steps are recognised after 16 calls
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<float> gradient(1 << 18);  // too large for a sum by messages
  auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, gradwire::Policy::uniform("exact"));
  const gradwire::TensorId id = session.add("weight", gradwire::view(gradient.data(), gradient.size()));
  std::vector<float> own(1 << 18);
  bool right = true;
  for (int step = 0; step < kSteps; ++step) {
    gradient.assign(gradient.size(), 1.5F);
    session.ready(id);
    session.finish();
    own.assign(own.size(), 1.0F);
    MPI_Allreduce(MPI_IN_PLACE, own.data(), static_cast<int>(own.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    right = right && gradient.front() == 1.5F && gradient.back() == 1.5F &&
            std::abs(own.front() - static_cast<float>(size)) < 0.01F;  // a drop-in may have compressed it
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  int rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool right = train();
  if (rank == 0 && right) {
    std::puts("session ok");
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
