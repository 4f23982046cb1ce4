#include "transport/mpi_abort.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transport/backoff.hpp"
#include "transport/mpi_check.hpp"

namespace gradwire::transport {

bool finish_all(MPI_Request* requests, int count, std::chrono::milliseconds limit) noexcept {
  Backoff backoff;
  const auto deadline = Backoff::Clock::now() + limit;
  for (;;) {
    int all = 0;
    if (MPI_Testall(count, requests, &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      return false;
    }
    if (all != 0) {
      return true;
    }
    if (Backoff::Clock::now() >= deadline) {
      return false;
    }
    backoff.pause(deadline);
  }
}

bool cancel_receives(MPI_Request* requests, int count) noexcept {
  for (int i = 0; i < count; ++i) {
    if (requests[i] != MPI_REQUEST_NULL && MPI_Cancel(&requests[i]) != MPI_SUCCESS) {
      return false;
    }
  }
  // A receive that has met its message cannot be cancelled any more, and never completes if the sender died.
  return finish_all(requests, count, std::chrono::milliseconds(20));
}

MpiAbortChannel::MpiAbortChannel(MPI_Comm comm, int rank, int world_size) : rank_(rank), world_size_(world_size) {
  check_mpi(MPI_Comm_dup(comm, &comm_), "duplicating the communicator for abort messages (MPI_Comm_dup)");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (world_size > 1) {
    check_mpi(MPI_Irecv(incoming_.data(), static_cast<int>(kBytes), MPI_CHAR, MPI_ANY_SOURCE, 0, comm_, &request_),
              "posting the receive of abort messages (MPI_Irecv)");
  }
}

void MpiAbortChannel::take(const MPI_Status& status) {
  int size = 0;
  if (MPI_Get_count(&status, MPI_CHAR, &size) != MPI_SUCCESS || size < 1 || size > static_cast<int>(kBytes)) {
    set({status.MPI_SOURCE, ErrorCode::internal, "an abort message that cannot be read"});
    return;
  }
  const auto code = static_cast<unsigned char>(incoming_[0]);
  const bool known = code <= static_cast<unsigned char>(ErrorCode::internal);
  set({status.MPI_SOURCE, known ? ErrorCode{code} : ErrorCode::internal,
       std::string(incoming_.data() + 1, static_cast<std::size_t>(size - 1))});
}

bool MpiAbortChannel::set(AbortReason reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (reason_) {
    return false;
  }
  reason_ = std::move(reason);
  raised_ = true;
  return true;
}

bool MpiAbortChannel::raise(ErrorCode code, const std::string& message) noexcept { return set({rank_, code, message}); }

Error MpiAbortChannel::error() const {
  const std::lock_guard lock(mutex_);
  return reason_->as_seen_by(rank_);
}

void MpiAbortChannel::announce(std::chrono::milliseconds limit) noexcept {
  AbortReason reason;
  {
    const std::lock_guard lock(mutex_);
    reason = *reason_;
  }
  if (reason.origin == rank_ && !announced_.exchange(true)) {
    send(reason, limit);
  }
}

void MpiAbortChannel::send(const AbortReason& reason, std::chrono::milliseconds limit) const noexcept {
  auto buffer = std::make_unique<Buffer>();
  auto requests = std::make_unique<std::vector<MPI_Request>>();
  const std::size_t text = std::min(reason.message.size(), kBytes - 1);
  (*buffer)[0] = static_cast<char>(reason.code);
  std::copy_n(reason.message.begin(), text, buffer->begin() + 1);
  for (int peer = 0; peer < world_size_; ++peer) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (peer != rank_ &&
        MPI_Isend(buffer->data(), static_cast<int>(text + 1), MPI_CHAR, peer, 0, comm_, &request) == MPI_SUCCESS) {
      requests->push_back(request);
    }
  }
  if (!finish_all(requests->data(), static_cast<int>(requests->size()), limit)) {
    static_cast<void>(buffer.release());
    static_cast<void>(requests.release());
  }
}

bool MpiAbortChannel::close() noexcept { return cancel_receives(&request_, 1) && MPI_Comm_free(&comm_) == MPI_SUCCESS; }

}  // namespace gradwire::transport
