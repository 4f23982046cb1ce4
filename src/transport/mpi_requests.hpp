// The MPI requests under way: what is posted, tested and given back as one array.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// A posted operation, until it is done or cancelled.
struct MpiOperation {
  Operation* operation = nullptr;
  Operation::Kind kind = Operation::Kind::send;
  std::unique_ptr<std::byte[]> head;  // of a message that has one
  bool awaits_head = false;           // of a receive
  bool awaits_bulk = false;           // a receive's head has come, its bulk is not posted
  std::uint64_t parts_left = 0;
  DType dtype = DType::f32;                   // of a sum
  bool summed_here = false;                   // of a sum: by messages, not by MPI
  std::unique_ptr<std::byte[]> parts_of_sum;  // then what the others send
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

  /// One MPI_Testsome. Calls complete(part, status, MPI error code) for each that is over, in the order of posting,
  /// even after one threw; then throws the last Error. Whether any was over.
  template <class Complete>
  bool test(Complete complete) {
    const int count = test_some();
    std::optional<Error> failure;
    for (int i = 0; i < count; ++i) {
      const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
      // By value: completing one part may post more.
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

  // Parallel arrays, as MPI_Testsome wants them.
  std::vector<MPI_Request> requests_;
  std::vector<MpiPart> parts_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  bool in_status_ = false;  // the last test left error codes in the statuses
};

}  // namespace gradwire::transport
