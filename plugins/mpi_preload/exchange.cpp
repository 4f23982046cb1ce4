#include "plugins/mpi_preload/exchange.hpp"

#include <memory>
#include <string>

#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/backoff.hpp"
#include "transport/mpi_check.hpp"

namespace gradwire::mpi_preload {
namespace {

// Every rank's record to every rank. MPI_Ialltoallv rather than MPI_Iallgather: both libraries send such messages
// straight from rank to rank, so that when it hangs, the buffer shows who has answered.
struct Exchange {
  std::vector<shim::Standing> sent;
  std::vector<shim::Standing> received;
  std::vector<int> counts;
  std::vector<int> places;
  MPI_Request request = MPI_REQUEST_NULL;

  Exchange(int size, const shim::Standing& mine)
      : sent(static_cast<std::size_t>(size), mine), received(sent.size()), counts(sent.size(), sizeof(mine)) {
    for (int rank = 0; rank < size; ++rank) {
      places.push_back(rank * static_cast<int>(sizeof(mine)));
    }
  }
};

}  // namespace

bool wait_for(MPI_Request& request, std::chrono::milliseconds limit) {
  transport::Backoff backoff;
  const auto deadline = transport::Backoff::Clock::now() + limit;
  for (;;) {
    int done = 0;
    transport::check_mpi(PMPI_Test(&request, &done, MPI_STATUS_IGNORE), "waiting for the other ranks");
    if (done != 0) {
      return true;
    }
    if (transport::Backoff::Clock::now() >= deadline) {
      return false;
    }
    backoff.pause(deadline);
  }
}

std::vector<shim::Standing> exchange_standings(MPI_Comm comm, int size, const shim::Standing& mine,
                                               std::chrono::milliseconds limit, const std::string& hint) {
  auto exchange = std::make_unique<Exchange>(size, mine);
  transport::check_mpi(PMPI_Ialltoallv(exchange->sent.data(), exchange->counts.data(), exchange->places.data(),
                                       MPI_BYTE, exchange->received.data(), exchange->counts.data(),
                                       exchange->places.data(), MPI_BYTE, comm, &exchange->request),
                       "asking the other ranks (MPI_Ialltoallv)");
  if (wait_for(exchange->request, limit)) {
    return std::move(exchange->received);
  }
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!exchange->received[static_cast<std::size_t>(rank)].answered()) {
      missing.push_back(rank);
    }
  }
  static_cast<void>(exchange.release());  // MPI still has it
  throw Error(ErrorCode::timeout, "no answer from " + shim::name_ranks(missing) + " of " + std::to_string(size) +
                                      " within " + format_duration(limit) + ": " + hint);
}

}  // namespace gradwire::mpi_preload
