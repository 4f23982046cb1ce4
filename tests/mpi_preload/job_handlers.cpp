// Tests error handlers that do not return, and errors of the preload itself.
#include <chrono>
#include <csetjmp>
#include <string>
#include <thread>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
namespace {

struct Thrown {};
std::jmp_buf g_back;
int g_handled = 0;

void throwing(MPI_Comm*, int*, ...) {
  ++g_handled;
  throw Thrown();
}
void jumping(MPI_Comm*, int*, ...) {
  ++g_handled;
  std::longjmp(g_back, 1);
}
void freeing(MPI_Comm* comm, int*, ...) {  // NOLINT(readability-non-const-parameter): MPI's signature
  ++g_handled;
  MPI_Comm copy = *comm;
  MPI_Comm_free(&copy);
  throw Thrown();
}

void set_handler(MPI_Comm comm, MPI_Comm_errhandler_function* function) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(function, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
}

void wrong_call(MPI_Comm comm) {
  std::vector<float> values(kCount);
  MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_DATATYPE_NULL, MPI_SUM, comm);
}
void wrong_scatter(MPI_Comm comm) {
  static std::vector<float> values(kCount);  // static, so that a jump does not lose them
  MPI_Reduce_scatter_block(MPI_IN_PLACE, values.data(), kCount, MPI_DATATYPE_NULL, MPI_SUM, comm);
}

template <typename Call>
bool throws(const Call& call) {
  try {
    call();
  } catch (const Thrown&) {
    return true;
  }
  return false;
}

}  // namespace

// Afterwards the communicator works as without the preload, before and after its ranks have agreed.
void handlers() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int round = 1; round <= 2; ++round) {
    set_handler(comm, &throwing);
    JOB_CHECK(throws([&] { wrong_call(comm); }));
    JOB_CHECK(throws([&] { wrong_scatter(comm); }));
    set_handler(comm, &jumping);
    if (setjmp(g_back) == 0) {
      wrong_scatter(comm);
      JOB_CHECK(false);
    }
    JOB_CHECK(g_handled == 3 * round);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    reduce_on(comm);
  }
  set_handler(comm, &freeing);
  JOB_CHECK(throws([&] { wrong_call(comm); }));
  reduce_on(MPI_COMM_WORLD);
}

// Rank 1 reaches its second sum when the others have given up.
void given_up() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  reduce_on(MPI_COMM_WORLD);
  if (g_rank == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(5));
  }
  std::vector<float> values = values_of(g_rank, kCount);
  const auto reduce = [&] {
    return MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  int code = reduce();
  if (g_rank == 1 && code == MPI_SUCCESS) {
    code = reduce();  // all messages of rank 0 may have arrived before it gave up
  }
  JOB_CHECK(code != MPI_SUCCESS);
  std::vector<char> text(MPI_MAX_ERROR_STRING);
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::printf("rank %d was told: %s\n", g_rank, text.data());
  JOB_CHECK(reduce() == code);
  set_handler(MPI_COMM_WORLD, &throwing);
  JOB_CHECK(throws(reduce));
  JOB_CHECK(g_handled == 1);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

}  // namespace job
