#include "transport/mpi_check_in.hpp"

#include <algorithm>
#include <memory>

#include "base/awake_time.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/backoff.hpp"
#include "transport/mpi_check.hpp"
#include "transport/silence.hpp"

namespace gradwire::transport {
namespace {

// Making a duplicate takes many rounds of messages, each of which waits for the next poll.
constexpr std::chrono::milliseconds kPolls{5};

}  // namespace

bool finish_within(MPI_Request& request, std::chrono::milliseconds limit) {
  Backoff backoff(kPolls);
  AwakeTime time;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "waiting for the other ranks (MPI_Test)");
    if (done != 0) {
      return true;
    }
    const auto waited = time.waited();
    if (waited >= limit) {
      return false;
    }
    backoff.pause(Backoff::Clock::now() + (limit - waited));
  }
}

void throw_not_over(std::chrono::milliseconds limit, const std::string& what) {
  throw Error(ErrorCode::timeout,
              what + ": not over within " + format_duration(limit) +
                  "; a rank that had begun it with the others stopped or died",
              ErrorCause::world);
}

// The buffers that MPI may still use when waiting is given up.
struct RecordExchange::Buffers {
  std::size_t size = 0;
  std::size_t bytes = 0;  // size of a record
  std::vector<std::byte> sent;
  std::vector<std::byte> received;
  std::vector<int> counts;
  std::vector<int> places;
  MPI_Request request = MPI_REQUEST_NULL;

  Buffers(int ranks, std::span<const std::byte> mine)
      : size(static_cast<std::size_t>(ranks)),
        bytes(mine.size()),
        received(size * bytes),
        counts(size, static_cast<int>(bytes)) {
    for (int rank = 0; rank < ranks; ++rank) {
      sent.insert(sent.end(), mine.begin(), mine.end());
      places.push_back(rank * static_cast<int>(bytes));
    }
  }
};

RecordExchange::RecordExchange(MPI_Comm comm, std::span<const std::byte> mine) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  buffers_ = std::make_unique<Buffers>(size, mine);
  Buffers& of = *buffers_;
  check_mpi(MPI_Ialltoallv(of.sent.data(), of.counts.data(), of.places.data(), MPI_BYTE, of.received.data(),
                           of.counts.data(), of.places.data(), MPI_BYTE, comm, &of.request),
            "asking the other ranks (MPI_Ialltoallv)");
}

RecordExchange::~RecordExchange() {
  if (buffers_ != nullptr && buffers_->request != MPI_REQUEST_NULL) {
    static_cast<void>(buffers_.release());
  }
}

Records RecordExchange::finish(std::chrono::milliseconds limit) {
  if (finish_within(buffers_->request, limit)) {
    return {std::move(buffers_->received), {}};
  }
  Records records{buffers_->received, {}};
  for (std::size_t rank = 0; rank < buffers_->size; ++rank) {
    if (records.all[rank * buffers_->bytes] == std::byte{0}) {
      records.missing.push_back(static_cast<int>(rank));
    }
  }
  return records;
}

Records exchange_records(MPI_Comm comm, std::span<const std::byte> mine, std::chrono::milliseconds limit) {
  return RecordExchange(comm, mine).finish(limit);
}

void throw_if_missing(const Records& records, std::size_t bytes, std::chrono::milliseconds limit,
                      const std::string& what) {
  if (!records.missing.empty()) {
    throw Error(ErrorCode::timeout,
                what + ": no answer from " + name_ranks(records.missing) + " of " +
                    std::to_string(records.all.size() / bytes) + " within " + format_duration(limit) +
                    "; every rank of the communicator must come here: is " +
                    "it alive, did it throw before, or is it late?",
                ErrorCause::world);
  }
}

bool check_in(MPI_Comm comm, std::chrono::milliseconds limit, const std::string& what, bool flag) {
  constexpr std::byte kYes{1};
  constexpr std::byte kNo{2};
  const std::byte mine = flag ? kYes : kNo;
  const Records records = exchange_records(comm, {&mine, 1}, limit);
  throw_if_missing(records, sizeof mine, limit, what);
  return std::all_of(records.all.begin(), records.all.end(), [](std::byte each) { return each == kYes; });
}

}  // namespace gradwire::transport
