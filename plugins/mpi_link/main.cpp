// gradwire-link: what `gradwire info --link` becomes. Measures the links of the MPI job that it is started as.
#include <mpi.h>

#include <exception>
#include <iostream>
#include <string>

#include "base/text.hpp"
#include "base/units.hpp"
#include "gradwire/mpi.hpp"

namespace gradwire::cli {
namespace {

void print(const LinkEstimate& link, int ranks) {
  const auto row = [](const std::string& tier, const LinkEstimate::Tier& measured) {
    return std::vector<std::string>{tier, format_number(measured.latency_seconds * 1e6, 3) + " us",
                                    format_rate(measured.bytes_per_second)};
  };
  std::vector<std::vector<std::string>> rows{{"tier", "latency", "bandwidth"}};
  if (link.ranks_per_node > 1) {
    rows.push_back(row("intra", link.intra));
  }
  rows.push_back(row("inter", link.inter));
  constexpr double kThousand = 1000;
  std::cout << "Links of " << ranks << " ranks, " << link.ranks_per_node << " a node, measured in "
            << format_number(link.measured_in_seconds * kThousand, 3) << " ms\n"
            << text::table(rows, "lrr");
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
  Session session = mpi::make_session(MPI_COMM_WORLD, Policy::uniform("exact"));
  const LinkEstimate link = session.link();
  if (rank == 0) {
    print(link, ranks);
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
