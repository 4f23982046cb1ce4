#include "transport/mpi_communicators.hpp"

#include <algorithm>
#include <memory>

#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::transport {
namespace {

constexpr Tag kNumbers = 2 * kTagLimit;  // tags of plain and of bulk messages
constexpr Tag kMostDuplicates = 32;

}  // namespace

int ask_tag_upper_bound() {
  void* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr(MPI_TAG_UB)");
  return found != 0 ? *static_cast<int*>(value) : 32767;  // MPI promises at least this
}

MpiCommunicators::MpiCommunicators(MPI_Comm comm, int tag_upper_bound, std::chrono::milliseconds timeout, bool own) {
  const int bound = tag_upper_bound > 0 ? tag_upper_bound : ask_tag_upper_bound();
  span_ = std::min(kNumbers, static_cast<Tag>(bound) + 1);
  has_spare_tag_ = static_cast<Tag>(bound) >= kNumbers;
  const Tag wanted = (kNumbers + span_ - 1) / span_;
  folds_ = wanted > kMostDuplicates;
  if (own && wanted == 1) {
    static_cast<void>(MPI_Comm_set_name(comm, kPrivateName));
    comms_ = {comm};
    return;
  }
  comms_.assign(std::min(wanted, kMostDuplicates), MPI_COMM_NULL);
  for (MPI_Comm& each : comms_) {
    each = duplicate(comm, timeout, "duplicating the communicator (MPI_Comm_idup)");
  }
}

void MpiCommunicators::free() noexcept {
  for (MPI_Comm& comm : comms_) {
    MPI_Comm_free(&comm);
  }
}

void MpiCommunicators::revoke() noexcept {
  for (MPI_Comm comm : comms_) {
    transport::revoke(comm);
  }
}

MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout, const std::string& what) {
  // MPI writes to the handle when the request ends, which may be after we have given up.
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(comm, made.get(), &request), what);
  if (!finish_within(request, timeout)) {
    static_cast<void>(made.release());
    throw_not_over(timeout, what);
  }
  check_mpi(MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  static_cast<void>(MPI_Comm_set_name(*made, kPrivateName));  // without its name it works as well
  return *made;
}

std::vector<std::uint32_t> find_nodes(MPI_Comm comm, int rank, int world_size, std::chrono::milliseconds timeout) {
  check_in(comm, timeout, "looking for ranks that share a node");  // MPI can split no communicator without waiting
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  struct Buffers {  // MPI may use these for longer than we wait
    std::uint32_t lowest = 0;
    std::vector<std::uint32_t> nodes;
  };
  auto buffers = std::make_unique<Buffers>();
  buffers->lowest = static_cast<std::uint32_t>(rank);
  buffers->nodes.resize(static_cast<std::size_t>(world_size));
  const auto finish = [&](MPI_Request& request, const std::string& what) {
    if (!finish_within(request, timeout)) {
      static_cast<void>(buffers.release());
      throw_not_over(timeout, what);
    }
  };
  MPI_Request request = MPI_REQUEST_NULL;
  const std::string lowest = "telling a node its lowest rank (MPI_Ibcast)";
  check_mpi(MPI_Ibcast(&buffers->lowest, 1, MPI_UINT32_T, 0, node, &request), lowest);
  finish(request, lowest);
  MPI_Comm_free(&node);
  const std::string all = "telling ranks each other's nodes (MPI_Iallgather)";
  check_mpi(MPI_Iallgather(&buffers->lowest, 1, MPI_UINT32_T, buffers->nodes.data(), 1, MPI_UINT32_T, comm, &request),
            all);
  finish(request, all);
  return std::move(buffers->nodes);
}

}  // namespace gradwire::transport
