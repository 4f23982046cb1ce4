// The MPI requests under way, in one array for MPI_Testsome.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/transport.hpp"
#include "memory/block.hpp"

namespace gradwire::transport {

/// A posted operation, until it is done or cancelled.
struct MpiOperation {
  Operation* operation = nullptr;
  Operation::Kind kind = Operation::Kind::send;
  std::unique_ptr<std::byte[]> head;  // the head of a long message
  bool awaits_head = false;           // a receive's head has not arrived
  bool awaits_bulk = false;           // a receive's head has arrived, its bulk is not posted
  std::uint64_t pending_parts = 0;
  DType dtype = DType::f32;         // sums only
  bool summed_by_messages = false;  // a sum is made by messages, not by MPI
  memory::Block parts_of_sum;       // the summands of the other ranks, where it is made by messages
  std::list<MpiOperation>::iterator self;
};

/// One MPI request's share of an operation.
struct MpiPart {
  MpiOperation* owner = nullptr;  // null: the abort channel's receive
  std::uint64_t bytes = 0;
};

class MpiRequests {
 public:
  void add(MPI_Request request, MpiPart part);

  /// Calls MPI_Testsome once, then complete(part, status, MPI error code) for each ended request, in the order of
  /// posting, even after one threw; then throws the last Error. Returns whether any had ended.
  template <class Complete>
  bool test(Complete complete) {
    const int count = test_some();
    std::optional<Error> failure;
    for (int i = 0; i < count; ++i) {
      const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
      // The part is copied, since completing it may post more.
      const MpiPart part = parts_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])];
      try {
        complete(part, status, in_status_ ? status.MPI_ERROR : MPI_SUCCESS);
      } catch (const Error& error) {
        failure = error;
      }
    }
    if (count > 0) {
      forget_null();
    }
    if (failure) {
      throw Error(*failure);
    }
    return count > 0;
  }

  /// Removes and returns the requests of one operation.
  [[nodiscard]] std::vector<MPI_Request> take(const MpiOperation& owner);

 private:
  int test_some();
  int test_each();
  void forget_null();

  // Parallel arrays for MPI_Testsome.
  std::vector<MPI_Request> requests_;
  std::vector<MpiPart> parts_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  bool in_status_ = false;  // the last test left error codes in the statuses
};

}  // namespace gradwire::transport
