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

std::vector<std::uint32_t> find_nodes(MPI_Comm comm, int rank, int world_size) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  auto lowest = static_cast<std::uint32_t>(rank);
  check_mpi(MPI_Bcast(&lowest, 1, MPI_UINT32_T, 0, node), "telling a node its lowest rank (MPI_Bcast)");
  MPI_Comm_free(&node);
  std::vector<std::uint32_t> nodes(static_cast<std::size_t>(world_size));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_UINT32_T, nodes.data(), 1, MPI_UINT32_T, comm),
            "telling ranks each other's nodes (MPI_Allgather)");
  return nodes;
}

}  // namespace gradwire::transport
