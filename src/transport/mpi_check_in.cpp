#include "transport/mpi_check_in.hpp"

#include <algorithm>
#include <memory>

#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/backoff.hpp"
#include "transport/mpi_check.hpp"
#include "transport/silence.hpp"

namespace gradwire::transport {
namespace {

// A duplicate takes many rounds of messages, each of which waits for the next look.
constexpr std::chrono::milliseconds kPolls{5};

// What MPI may still have when waiting is given up.
struct Exchange {
  std::vector<std::byte> sent;
  std::vector<std::byte> received;
  std::vector<int> counts;
  std::vector<int> places;
  MPI_Request request = MPI_REQUEST_NULL;

  Exchange(int size, std::span<const std::byte> mine)
      : received(static_cast<std::size_t>(size) * mine.size()),
        counts(static_cast<std::size_t>(size), static_cast<int>(mine.size())) {
    for (int rank = 0; rank < size; ++rank) {
      sent.insert(sent.end(), mine.begin(), mine.end());
      places.push_back(rank * static_cast<int>(mine.size()));
    }
  }
};

}  // namespace

bool finish_within(MPI_Request& request, std::chrono::milliseconds limit) {
  Backoff backoff(kPolls);
  const auto deadline = Backoff::Clock::now() + limit;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "waiting for the other ranks (MPI_Test)");
    if (done != 0) {
      return true;
    }
    if (Backoff::Clock::now() >= deadline) {
      return false;
    }
    backoff.pause(deadline);
  }
}

void throw_not_over(std::chrono::milliseconds limit, const std::string& what) {
  throw Error(ErrorCode::timeout, what + ": not over within " + format_duration(limit) +
                                      "; a rank that had begun it with the others stopped or died");
}

Records exchange_records(MPI_Comm comm, std::span<const std::byte> mine, std::chrono::milliseconds limit) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  auto exchange = std::make_unique<Exchange>(size, mine);
  check_mpi(MPI_Ialltoallv(exchange->sent.data(), exchange->counts.data(), exchange->places.data(), MPI_BYTE,
                           exchange->received.data(), exchange->counts.data(), exchange->places.data(), MPI_BYTE, comm,
                           &exchange->request),
            "asking the other ranks (MPI_Ialltoallv)");
  if (finish_within(exchange->request, limit)) {
    return {std::move(exchange->received), {}};
  }
  Records records{exchange->received, {}};
  for (int rank = 0; rank < size; ++rank) {
    if (records.all[static_cast<std::size_t>(rank) * mine.size()] == std::byte{0}) {
      records.missing.push_back(rank);
    }
  }
  static_cast<void>(exchange.release());  // MPI still has it
  return records;
}

void throw_if_missing(const Records& records, std::size_t bytes, std::chrono::milliseconds limit,
                      const std::string& what) {
  if (!records.missing.empty()) {
    throw Error(ErrorCode::timeout, what + ": no answer from " + name_ranks(records.missing) + " of " +
                                        std::to_string(records.all.size() / bytes) + " within " +
                                        format_duration(limit) +
                                        "; every rank of the communicator must come here: is " +
                                        "it alive, did it throw before, or is it late?");
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
