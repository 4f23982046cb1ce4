// Makes a session, communicator or table while rank 2 is absent: `absent_rank KIND POINT`. POINT is `before`, or a
// function of MPI in which rank 2 stops for ever when it is called the first time. The others must get an Error within
// the timeout, print it, and exit with status 7.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gradwire/mpi.hpp"

namespace {

int g_rank = -1;
std::string g_point;

void stop_in(const char* point) {
  if (g_rank == 2 && g_point == point) {
    sleep(60);
    _exit(0);
  }
}

}  // namespace

// By MPI's profiling interface these functions replace the library's own.
extern "C" int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
  stop_in("MPI_Comm_idup");
  return PMPI_Comm_idup(comm, made, request);
}
extern "C" int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  stop_in("MPI_Ibcast");
  return PMPI_Ibcast(buffer, count, type, root, comm, request);
}
extern "C" int MPI_Iallgather(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, int count,
                              MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  stop_in("MPI_Iallgather");
  return PMPI_Iallgather(sent, sent_count, sent_type, received, count, type, comm, request);
}

int main(int argc, char** argv) {
  constexpr std::chrono::seconds kTimeout{2};
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  const std::string kind = argc > 1 ? argv[1] : "";
  g_point = argc > 2 ? argv[2] : "";
  try {
    stop_in("before");
    if (kind == "session") {
      const auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, {}, {.timeout = kTimeout});
    } else if (kind == "communicator") {
      const auto communicator = gradwire::mpi::make_communicator(MPI_COMM_WORLD, {.timeout = kTimeout});
    } else {
      const auto table = gradwire::mpi::make_table(MPI_COMM_WORLD, {.rows = 10, .width = 2, .timeout = kTimeout});
    }
  } catch (const gradwire::Error& error) {
    std::printf("rank %d: %s: %s\n", g_rank, std::string(to_string(error.code())).c_str(), error.what());
    std::fflush(stdout);
    _exit(7);  // MPI_Finalize would wait for the absent rank
  }
  _exit(0);
}
