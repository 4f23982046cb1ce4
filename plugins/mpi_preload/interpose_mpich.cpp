// What MPICH cannot do with generalized requests: its MPI_Waitall (4.0.2, request_impl.c, line 941) ends the job where
// one that is not complete stands beside MPI_REQUEST_NULL. So it gets arrays without nulls, once there are such
// requests.
#include <mpi.h>

#ifndef OPEN_MPI
#include <algorithm>
#include <vector>

#include "plugins/mpi_preload/interposed.hpp"
#include "plugins/mpi_preload/requests.hpp"

namespace gradwire::mpi_preload {
namespace {

// As MPI has it for requests that are null.
void make_empty(MPI_Status& status) {
  PMPI_Status_set_elements(&status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(&status, 0);
  status.MPI_SOURCE = MPI_ANY_SOURCE;
  status.MPI_TAG = MPI_ANY_TAG;
  status.MPI_ERROR = MPI_SUCCESS;
}

// The job's error handler may leave by a jump: what these hold is then lost, and no more than that.
int wait_without_nulls(int count, MPI_Request requests[], MPI_Status statuses[]) {
  std::vector<int> places;
  std::vector<MPI_Request> given;
  for (int i = 0; i < count; ++i) {
    if (requests[i] != MPI_REQUEST_NULL) {
      places.push_back(i);
      given.push_back(requests[i]);
    }
  }
  std::vector<MPI_Status> found(statuses == MPI_STATUSES_IGNORE ? 0 : given.size());
  const int code = PMPI_Waitall(static_cast<int>(given.size()), given.data(),
                                statuses == MPI_STATUSES_IGNORE ? MPI_STATUSES_IGNORE : found.data());
  if (statuses != MPI_STATUSES_IGNORE) {
    std::for_each(statuses, statuses + count, make_empty);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    requests[places[i]] = given[i];
    if (statuses != MPI_STATUSES_IGNORE) {
      statuses[places[i]] = found[i];
    }
  }
  return code;
}

}  // namespace
}  // namespace gradwire::mpi_preload

GRADWIRE_EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  using gradwire::mpi_preload::Requests;
  if (count > 0 && requests != nullptr && Requests::any()) {
    const auto nulls = std::count(requests, requests + count, MPI_REQUEST_NULL);
    if (nulls > 0 && nulls < count) {
      return gradwire::mpi_preload::wait_without_nulls(count, requests, statuses);
    }
  }
  return PMPI_Waitall(count, requests, statuses);
}
#endif
