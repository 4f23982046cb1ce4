// Waits on MPI that end: what is collective is made of nonblocking calls, and before a call of MPI that knows no
// nonblocking form the ranks check in, so that none enters it for ever because another is late, stopped or gone.
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

/// Whether the request was over within `limit`. Else MPI still has its buffers, which must be leaked.
[[nodiscard]] bool finish_within(MPI_Request& request, std::chrono::milliseconds limit);
/// Error(timeout) of a collective that began on all ranks: "WHAT: not over within 5s; ...".
[[noreturn]] void throw_not_over(std::chrono::milliseconds limit, const std::string& what);

/// Every rank's record, one behind another in rank order. Collective. MPI_Ialltoallv rather than MPI_Iallgather: both
/// libraries send such messages straight from rank to rank, so that when it hangs, the buffer shows who has answered.
struct Records {
  std::vector<std::byte> all;
  std::vector<int> missing;  // ranks that did not answer within the limit
};
class RecordExchange {
 public:
  /// Sends this rank's and does not wait. `mine`: of one size on all ranks, and its first byte is not zero.
  RecordExchange(MPI_Comm comm, std::span<const std::byte> mine);
  /// Leaves to MPI what it may still have.
  ~RecordExchange();
  RecordExchange(const RecordExchange&) = delete;
  RecordExchange& operator=(const RecordExchange&) = delete;
  /// Once, on any thread that may call MPI.
  [[nodiscard]] Records finish(std::chrono::milliseconds limit);

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};
/// Both at once.
[[nodiscard]] Records exchange_records(MPI_Comm comm, std::span<const std::byte> mine, std::chrono::milliseconds limit);

/// Error(timeout) that names who is missing from records of `bytes` each. `what` is for messages.
void throw_if_missing(const Records& records, std::size_t bytes, std::chrono::milliseconds limit,
                      const std::string& what);

/// Returns when every rank of `comm` is here: whether all said `flag`. Error(timeout) names the absent. `what` is for
/// messages: "making a transport".
bool check_in(MPI_Comm comm, std::chrono::milliseconds limit, const std::string& what, bool flag = true);

}  // namespace gradwire::transport
