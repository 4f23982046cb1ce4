// gradwire-link: the program that `gradwire info --link` becomes. It measures the links of the MPI job as which it is
// started.
#include <mpi.h>

#include <exception>
#include <iostream>

#include "gradwire/mpi.hpp"
#include "plugins/mpi_link/link_report.hpp"

namespace gradwire::cli {
namespace {

// On every rank.
int count_hosts() {
  MPI_Comm host = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &rank);
  MPI_Comm_free(&host);
  int hosts = rank == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return hosts;
}

int measure() {
  int ranks = 1;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (ranks == 1) {
    std::cout << "One rank has no links; start it as a job: mpirun -np 4 gradwire info --link\n";
    return 0;
  }
  const int hosts = count_hosts();
  Session session = mpi::make_session(MPI_COMM_WORLD, Policy::uniform("exact"));
  const LinkEstimate link = session.link();
  if (rank == 0) {
    std::cout << link_report(link, ranks, hosts);
  }
  return 0;
}

}  // namespace
}  // namespace gradwire::cli

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int status = 1;
  try {
    status = gradwire::cli::measure();
  } catch (const std::exception& error) {
    std::cerr << "gradwire: " << error.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  MPI_Finalize();
  return status;
}
