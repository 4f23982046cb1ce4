#include "transport/mpi_requests.hpp"

#include <utility>

#include "transport/mpi_check.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::transport {

void MpiRequests::add(MPI_Request request, MpiPart part) {
  requests_.push_back(request);
  parts_.push_back(part);
}

// Tests each request by itself. When one of several has failed, Open MPI 5.0 frees those whose error is known but which
// have not ended, and ends the job when they do ("Send error after request freed").
int MpiRequests::test_each() {
  std::size_t finished = 0;
  in_status_ = true;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) {
      continue;
    }
    int done = 0;
    MPI_Status& status = statuses_[finished];
    const int code = MPI_Test(&requests_[i], &done, &status);
    if (code != MPI_SUCCESS || done != 0) {
      status.MPI_ERROR = code;
      requests_[i] = MPI_REQUEST_NULL;
      indices_[finished++] = static_cast<int>(i);
    }
  }
  return static_cast<int>(finished);
}

int MpiRequests::test_some() {
  int finished = 0;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  if (tolerates_faults()) {
    return test_each();
  }
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &finished, indices_.data(), statuses_.data());
  in_status_ = code == MPI_ERR_IN_STATUS;
  if (!in_status_) {
    check_mpi(code, "testing messages (MPI_Testsome)");
  }
  if (finished == MPI_UNDEFINED) {
    return 0;
  }
  for (int i = 0; i < finished; ++i) {
    // MPI may not have freed a request that failed; it has ended all the same.
    requests_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])] = MPI_REQUEST_NULL;
  }
  return finished;
}

void MpiRequests::forget_null() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) {
      requests_[kept] = requests_[i];
      parts_[kept] = parts_[i];
      ++kept;
    }
  }
  requests_.resize(kept);
  parts_.resize(kept);
}

std::vector<MPI_Request> MpiRequests::take(const MpiOperation& owner) {
  std::vector<MPI_Request> taken;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (parts_[i].owner == &owner) {
      taken.push_back(std::exchange(requests_[i], MPI_REQUEST_NULL));
    }
  }
  forget_null();
  return taken;
}

}  // namespace gradwire::transport
