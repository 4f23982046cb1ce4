// Replaces MPICH's waits once there are generalized requests. Its waits poll without giving the core away, so that the
// thread that makes the calls runs only when a time slice ends; and MPI_Waitall (4.0.2, request_impl.c, line 941) ends
// the job where a request that is not complete stands beside MPI_REQUEST_NULL. MPICH's test functions have neither
// fault.
#include <mpi.h>

#ifndef OPEN_MPI
#include <sched.h>

#include "plugins/mpi_preload/job_functions.hpp"
#include "plugins/mpi_preload/requests.hpp"

namespace gradwire::mpi_preload {
namespace {

// `test` says whether the wait is over, and returns a code of MPI. The job's error handler may run in it.
template <typename Wait, typename Test>
int wait_by(const Wait& wait, const Test& test) {
  if (!Requests::any()) {
    return wait();
  }
  for (int done = 0;;) {
    const int code = test(&done);
    if (code != MPI_SUCCESS || done != 0) {
      return code;
    }
    ::sched_yield();
  }
}

}  // namespace
}  // namespace gradwire::mpi_preload

using gradwire::mpi_preload::wait_by;

GRADWIRE_EXPORT int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  return wait_by([=] { return GRADWIRE_NEXT(MPI_Wait)(request, status); },
                 [=](int* done) { return PMPI_Test(request, done, status); });
}

GRADWIRE_EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  return wait_by([=] { return GRADWIRE_NEXT(MPI_Waitall)(count, requests, statuses); },
                 [=](int* done) { return PMPI_Testall(count, requests, done, statuses); });
}

GRADWIRE_EXPORT int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  return wait_by([=] { return GRADWIRE_NEXT(MPI_Waitany)(count, requests, index, status); },
                 [=](int* done) { return PMPI_Testany(count, requests, index, done, status); });
}

GRADWIRE_EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int* completed, int indices[],
                                 MPI_Status statuses[]) {
  return wait_by([=] { return GRADWIRE_NEXT(MPI_Waitsome)(count, requests, completed, indices, statuses); },
                 [=](int* done) {
                   const int code = PMPI_Testsome(count, requests, completed, indices, statuses);
                   *done = code == MPI_SUCCESS ? *completed : 0;  // MPI_UNDEFINED where all requests are null
                   return code;
                 });
}
#endif
