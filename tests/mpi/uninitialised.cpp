// Uses the transport before MPI_Init, after MPI_Finalize and over no communicator: each gives an Error that says what
// to call.
#include <mpi.h>

#include <cstdio>
#include <string>

#include "gradwire/mpi.hpp"

namespace {

bool refuses(MPI_Comm comm, const std::string& text) {
  try {
    (void)gradwire::mpi::make_transport(comm);
  } catch (const gradwire::Error& error) {
    const std::string what = error.what();
    std::printf("%s\n", what.c_str());
    return error.code() == gradwire::ErrorCode::invalid_argument && what.find(text) != std::string::npos;
  }
  std::printf("no error; expected one with \"%s\"\n", text.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  bool good = refuses(MPI_COMM_WORLD, "not initialised");
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  good = refuses(MPI_COMM_NULL, "MPI_COMM_NULL") && good;
  MPI_Finalize();
  good = refuses(MPI_COMM_WORLD, "already finalised") && good;
  return good ? 0 : 1;
}
