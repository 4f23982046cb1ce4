#include "transport/mpi_world.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/backoff.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_communicators.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::transport {

MpiWorld::MpiWorld(std::chrono::milliseconds timeout)
    : comm_(duplicate(MPI_COMM_WORLD, timeout, "duplicating MPI_COMM_WORLD (MPI_Comm_idup)")),
      tags_(ask_tag_upper_bound()),
      slots_(tags_.slots()) {
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  nodes_ = find_nodes(comm_, rank_, size_, timeout);
  post();
}

MpiWorld::~MpiWorld() {
  if (request_ != MPI_REQUEST_NULL) {
    static_cast<void>(incoming_.release());  // MPI may still write there
  }
}

void MpiWorld::post() {
  check_mpi(MPI_Irecv(incoming_->data(), static_cast<int>(kBytes), MPI_CHAR, MPI_ANY_SOURCE, TagPlan::notice(), comm_,
                      &request_),
            "posting the receive of notices (MPI_Irecv)");
}

void MpiWorld::listen(CommNumber number, NoticeListener& listener) {
  const MutexLock lock(mutex_);
  listeners_[number] = &listener;
  const auto [begin, end] = undelivered_notices_.equal_range(number);
  for (auto each = begin; each != end; ++each) {
    listener.hear(each->second.from, each->second.bytes);
  }
  undelivered_notices_.erase(begin, end);
  for (const int rank : ended_) {
    listener.hear_of_end(rank);
  }
}

void MpiWorld::stop_listening(CommNumber number) noexcept {
  const MutexLock lock(mutex_);
  listeners_.erase(number);
}

void MpiWorld::poll() noexcept {
  if (!mutex_.try_lock()) {
    return;
  }
  const MutexLock lock(mutex_, std::adopt_lock);
  try {
    for (int done = 1; done != 0 && request_ != MPI_REQUEST_NULL;) {
      done = 0;
      MPI_Status status;
      const int code = MPI_Test(&request_, &done, &status);
      if (code != MPI_SUCCESS) {  // where MPI goes on when ranks end, a receive from any rank reports an end
        note_ends();
        if (request_ == MPI_REQUEST_NULL) {
          post();
        }
        return;
      }
      if (done != 0) {
        take(status);
        post();
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): MPI has ended, so there are no more notices
  }
}

void MpiWorld::take(const MPI_Status& status) noexcept {
  int size = 0;
  CommNumber number = 0;
  if (MPI_Get_count(&status, MPI_CHAR, &size) != MPI_SUCCESS || size <= static_cast<int>(sizeof number)) {
    return;
  }
  std::memcpy(&number, incoming_->data(), sizeof number);
  const std::span<const char> bytes(incoming_->data() + sizeof number, static_cast<std::size_t>(size) - sizeof number);
  if (const auto found = listeners_.find(number); found != listeners_.end()) {
    found->second->hear(status.MPI_SOURCE, bytes);
  } else {
    if (undelivered_notices_.size() >= kMostUnheard) {
      undelivered_notices_.erase(undelivered_notices_.begin());
    }
    undelivered_notices_.emplace(number, Notice{status.MPI_SOURCE, {bytes.begin(), bytes.end()}});
  }
}

void MpiWorld::note_ends() noexcept {
  for (const int rank : acknowledge_ended(comm_)) {
    if (ended_.insert(rank).second) {
      for (const auto& [number, listener] : listeners_) {
        listener->hear_of_end(rank);
      }
    }
  }
}

void MpiWorld::notify(CommNumber number, std::span<const int> ranks, std::span<const char> bytes,
                      std::chrono::milliseconds limit) const noexcept {
  auto buffer = std::make_unique<std::vector<char>>(sizeof number);
  auto requests = std::make_unique<std::vector<MPI_Request>>();
  std::memcpy(buffer->data(), &number, sizeof number);
  const std::size_t fits = std::min(bytes.size(), kBytes - sizeof number);
  buffer->insert(buffer->end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(fits));
  for (const int rank : ranks) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank != rank_ && MPI_Isend(buffer->data(), static_cast<int>(buffer->size()), MPI_CHAR, rank, TagPlan::notice(),
                                   comm_, &request) == MPI_SUCCESS) {
      requests->push_back(request);
    }
  }
  if (!finish_all(requests->data(), static_cast<int>(requests->size()), limit)) {
    static_cast<void>(buffer.release());
    static_cast<void>(requests.release());  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): MPI may still read them
  }
}

void MpiWorld::end() noexcept {
  const MutexLock lock(mutex_);
  if (request_ != MPI_REQUEST_NULL && !cancel_receives(&request_, 1)) {
    static_cast<void>(incoming_.release());  // MPI may still write there
    return;
  }
  request_ = MPI_REQUEST_NULL;
  if (!is_faulty(comm_)) {
    MPI_Comm_free(&comm_);
  }
}

}  // namespace gradwire::transport
