#include "transport/mpi_communicators.hpp"

#include <algorithm>

#include "transport/mpi_check.hpp"

namespace gradwire::transport {
namespace {

constexpr Tag kNumbers = 2 * kTagLimit;  // plain and bulk
constexpr Tag kMostDuplicates = 32;

int ask_tag_upper_bound(MPI_Comm comm) {
  void* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr(MPI_TAG_UB)");
  return found != 0 ? *static_cast<int*>(value) : 32767;  // the least that MPI promises
}

}  // namespace

MpiCommunicators::MpiCommunicators(MPI_Comm comm, int tag_upper_bound) {
  const int bound = tag_upper_bound > 0 ? tag_upper_bound : ask_tag_upper_bound(comm);
  span_ = std::min(kNumbers, static_cast<Tag>(bound) + 1);
  const Tag wanted = (kNumbers + span_ - 1) / span_;
  comms_.assign(std::min(wanted, kMostDuplicates), MPI_COMM_NULL);
  for (MPI_Comm& duplicate : comms_) {
    check_mpi(MPI_Comm_dup(comm, &duplicate), "duplicating the communicator (MPI_Comm_dup)");
    check_mpi(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
}

void MpiCommunicators::free() noexcept {
  for (MPI_Comm& comm : comms_) {
    MPI_Comm_free(&comm);
  }
}

}  // namespace gradwire::transport
