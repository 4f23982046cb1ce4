// Waits on MPI that end: collectives are made of nonblocking calls. Before a call of MPI that has no nonblocking form
// the ranks check in, so that none blocks in it for ever because another is late, stopped or gone.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradwire::transport {

/// Whether the request ended within `limit`. If not, MPI still uses its buffers, which must be leaked.
[[nodiscard]] bool finish_within(MPI_Request& request, std::chrono::milliseconds limit);
/// Throws Error(timeout) for a collective that began on all ranks: "WHAT: not over within 5s; ...".
[[noreturn]] void throw_not_over(std::chrono::milliseconds limit, const std::string& what);

/// The records of all ranks, one behind another in rank order. The exchange is collective. It uses MPI_Ialltoallv
/// rather than MPI_Iallgather: both MPI libraries send such messages straight from rank to rank, so that when it hangs,
/// the buffer shows which ranks have answered.
struct Records {
  std::vector<std::byte> all;
  std::vector<int> missing;  // ranks that did not answer within the limit
};
class RecordExchange {
 public:
  /// Sends this rank's record and does not wait. `mine` has one size on all ranks, and its first byte is not zero.
  RecordExchange(MPI_Comm comm, std::span<const std::byte> mine);
  /// Leaves to MPI the buffers that it may still use.
  ~RecordExchange();
  RecordExchange(const RecordExchange&) = delete;
  RecordExchange& operator=(const RecordExchange&) = delete;
  /// Waits for the records. To be called once, on any thread that may call MPI.
  [[nodiscard]] Records finish(std::chrono::milliseconds limit);

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};
/// Sends this rank's record and waits for all.
[[nodiscard]] Records exchange_records(MPI_Comm comm, std::span<const std::byte> mine, std::chrono::milliseconds limit);

/// Throws Error(timeout), which names the missing ranks, if any of the records of `bytes` each is missing. `what` is
/// for messages.
void throw_if_missing(const Records& records, std::size_t bytes, std::chrono::milliseconds limit,
                      const std::string& what);

/// Waits until every rank of `comm` has called it, and returns whether all gave `flag`. Error(timeout) names the absent
/// ranks. `what` is for messages: "making a transport".
bool check_in(MPI_Comm comm, std::chrono::milliseconds limit, const std::string& what, bool flag = true);

}  // namespace gradwire::transport
