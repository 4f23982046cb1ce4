#include "transport/mpi_abort.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/backoff.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_communicators.hpp"

namespace gradwire::transport {
namespace {

constexpr std::chrono::milliseconds kAnswerLimit{20};

}  // namespace

bool finish_all(MPI_Request* requests, int count, std::chrono::milliseconds limit) noexcept {
  Backoff backoff;
  const auto deadline = Backoff::Clock::now() + limit;
  for (;;) {
    int all = 1;
    for (int i = 0; i < count; ++i) {  // one by one, for the reason given at MpiRequests::test_each
      int done = 0;
      if (MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        return false;
      }
      all &= done;
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
  // A receive that has matched its message cannot be cancelled any more, and never completes if the sender died.
  return finish_all(requests, count, std::chrono::milliseconds(20));
}

MpiAbortChannel::MpiAbortChannel(MPI_Comm comm, int rank, int world_size)
    : rank_(rank), world_size_(world_size), comm_(comm) {
  set_rank(rank);
  post();
}

void MpiAbortChannel::post() {
  if (world_size_ > 1) {
    check_mpi(MPI_Irecv(incoming_.data(), static_cast<int>(kBytes), MPI_CHAR, MPI_ANY_SOURCE, 0, comm_, &request_),
              "posting the receive of abort messages (MPI_Irecv)");
  }
}

void MpiAbortChannel::take(const MPI_Status& status, int result, const WaitsFor& waits_for) {
  request_ = MPI_REQUEST_NULL;
  check_mpi(result, "waiting for the other ranks (MPI_Irecv)");
  int size = 0;
  if (MPI_Get_count(&status, MPI_CHAR, &size) != MPI_SUCCESS || size < 1 || size > static_cast<int>(kBytes)) {
    note_.set({status.MPI_SOURCE, Error(ErrorCode::internal, "an abort message that cannot be read")});
    return;
  }
  const auto code = static_cast<unsigned char>(incoming_[0]);
  if (code == kQuestion && size == 1 + sizeof(std::uint32_t)) {
    std::vector<int> ranks = waits_for();
    ranks.resize(std::min(ranks.size(), (kBytes - static_cast<std::size_t>(size)) / sizeof(int)));
    std::vector<char> answer(incoming_.begin(), incoming_.begin() + size);
    answer[0] = static_cast<char>(kAnswer);
    answer.insert(answer.end(), reinterpret_cast<const char*>(ranks.data()),
                  reinterpret_cast<const char*>(ranks.data() + ranks.size()));
    post();
    send(std::span(&status.MPI_SOURCE, 1), answer, kAnswerLimit);
    return;
  }
  if (code == kAnswer) {
    take_answer(status.MPI_SOURCE, size);
    post();
    return;
  }
  const bool known = code <= static_cast<unsigned char>(kLastErrorCode);
  note_.set({status.MPI_SOURCE, Error(known ? ErrorCode{code} : ErrorCode::internal,
                                      std::string(incoming_.data() + 1, static_cast<std::size_t>(size - 1)))});
}

void MpiAbortChannel::take_answer(int peer, int size) {
  std::uint32_t question = 0;
  constexpr std::size_t kHead = 1 + sizeof question;
  if (static_cast<std::size_t>(size) < kHead || answers_.empty()) {
    return;
  }
  std::memcpy(&question, incoming_.data() + 1, sizeof question);
  if (question != question_) {
    return;  // the answer came too late
  }
  PeerState& state = answers_[static_cast<std::size_t>(peer)];
  state.answers = true;
  state.waits_for.resize((static_cast<std::size_t>(size) - kHead) / sizeof(int));
  std::memcpy(state.waits_for.data(), incoming_.data() + kHead, state.waits_for.size() * sizeof(int));
}

void MpiAbortChannel::ask() {
  ++question_;
  answers_.assign(static_cast<std::size_t>(world_size_), {});
  answers_[static_cast<std::size_t>(rank_)].answers = true;
  std::vector<char> bytes(1 + sizeof question_);
  bytes[0] = static_cast<char>(kQuestion);
  std::memcpy(bytes.data() + 1, &question_, sizeof question_);
  send(others(), bytes, kAnswerLimit);
}

void MpiAbortChannel::announce(std::chrono::milliseconds limit) noexcept {
  const AbortReason reason = note_.reason();
  if (reason.origin == rank_ && !announced_.exchange(true)) {
    std::vector<char> bytes{static_cast<char>(reason.error.code())};
    const std::string_view text(reason.error.what());
    bytes.insert(bytes.end(), text.begin(),
                 text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), kBytes - 1)));
    send(others(), bytes, limit);
  }
}

std::vector<int> MpiAbortChannel::others() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_) {
      ranks.push_back(peer);
    }
  }
  return ranks;
}

// Messages that are not sent within `limit` are leaked.
void MpiAbortChannel::send(std::span<const int> peers, std::span<const char> bytes,
                           std::chrono::milliseconds limit) const noexcept {
  auto buffer = std::make_unique<std::vector<char>>(bytes.begin(), bytes.end());
  auto requests = std::make_unique<std::vector<MPI_Request>>();
  for (const int peer : peers) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(buffer->data(), static_cast<int>(buffer->size()), MPI_CHAR, peer, 0, comm_, &request) ==
        MPI_SUCCESS) {
      requests->push_back(request);
    }
  }
  if (!finish_all(requests->data(), static_cast<int>(requests->size()), limit)) {
    static_cast<void>(buffer.release());
    static_cast<void>(requests.release());  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): MPI may still read them
  }
}

bool MpiAbortChannel::close() noexcept { return cancel_receives(&request_, 1); }

}  // namespace gradwire::transport
