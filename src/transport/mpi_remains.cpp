#include "transport/mpi_remains.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "transport/backoff.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"

namespace gradwire::transport {
namespace {

using Clock = Backoff::Clock;

struct Registry {
  Mutex mutex;
  std::vector<MpiRemains> remains GUARDED_BY(mutex);
  std::uint32_t made GUARDED_BY(mutex) = 0;  // number of transports that this process began to make
};
Registry& registry() {  // never destroyed: transports may outlive static objects
  static auto* const instance = new Registry;
  return *instance;
}

// The record that a rank sends before a transport is made.
struct Entry {
  std::uint32_t here = 1;
  std::uint32_t serial = 0;              // rank 0's is used: no two transports of the same ranks have the same
  std::array<std::uint32_t, 16> left{};  // serials of transports that it left behind with these ranks; 0: none
};

bool same_ranks(MPI_Comm a, MPI_Comm b) {
  int compared = MPI_UNEQUAL;
  check_mpi(MPI_Comm_compare(a, b, &compared), "MPI_Comm_compare");
  return compared == MPI_CONGRUENT || compared == MPI_IDENT;
}

// Sends each other rank a last message, and reads everything up to the last message of each. Messages between two ranks
// arrive in the order in which they were sent. False: a message did not end in time.
bool empty(MPI_Comm comm, int tag, Clock::time_point deadline) {
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  static const char nothing = 0;
  std::vector<MPI_Request> sent;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      check_mpi(MPI_Isend(&nothing, 0, MPI_CHAR, peer, tag, comm, &sent.emplace_back(MPI_REQUEST_NULL)), "MPI_Isend");
    }
  }
  Backoff backoff;
  const auto left = [&] { return std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()); };
  for (int ended = 1; ended < size;) {
    int found = 0;
    int bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status), "MPI_Improbe");
    if (found == 0) {
      if (Clock::now() >= deadline) {
        return false;
      }
      backoff.pause(deadline);
      continue;
    }
    check_mpi(MPI_Get_count(&status, MPI_CHAR, &bytes), "MPI_Get_count");
    auto buffer = std::make_unique<std::vector<char>>(static_cast<std::size_t>(bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Imrecv(buffer->data(), bytes, MPI_CHAR, &message, &request), "MPI_Imrecv");
    if (!finish_within(request, left())) {
      static_cast<void>(buffer.release());
      return false;
    }
    ended += status.MPI_TAG == tag ? 1 : 0;
  }
  return finish_all(sent.data(), static_cast<int>(sent.size()), left());
}

// Takes the latest remains of these ranks, the latest first.
std::vector<MpiRemains> take_remains_of(MPI_Comm comm, std::size_t most) {
  const MutexLock lock(registry().mutex);
  std::vector<MpiRemains>& remains = registry().remains;
  std::sort(remains.begin(), remains.end(), [](const auto& a, const auto& b) { return a.serial > b.serial; });
  std::vector<MpiRemains> taken;
  std::erase_if(remains, [&](const MpiRemains& each) {
    const bool takes = taken.size() < most && same_ranks(each.messages, comm);
    if (takes) {
      taken.push_back(each);
    }
    return takes;
  });
  return taken;
}

}  // namespace

void leave_behind(const MpiRemains& remains) {
  const MutexLock lock(registry().mutex);
  registry().remains.push_back(remains);
}

std::size_t kept_communicators() {
  const MutexLock lock(registry().mutex);
  return registry().remains.size();
}

std::uint32_t begin_transport(MPI_Comm comm, std::chrono::milliseconds timeout) {
  Entry mine;
  std::vector<MpiRemains> candidates = take_remains_of(comm, mine.left.size());
  std::transform(candidates.begin(), candidates.end(), mine.left.begin(), [](const auto& each) { return each.serial; });
  {
    const MutexLock lock(registry().mutex);
    mine.serial = ++registry().made;
  }
  const Records records = exchange_records(comm, std::as_bytes(std::span(&mine, 1)), timeout);
  std::vector<Entry> all(records.all.size() / sizeof mine);
  std::memcpy(all.data(), records.all.data(), records.all.size());
  // Every rank selects the same remains in the same order: those that all ranks have. A rank may have ended a transport
  // without an abort, or not yet.
  for (MpiRemains& remains : candidates) {
    const bool everywhere =
        records.missing.empty() && std::all_of(all.begin(), all.end(), [&](const Entry& entry) {
          return std::find(entry.left.begin(), entry.left.end(), remains.serial) != entry.left.end();
        });
    if (!everywhere) {
      leave_behind(remains);
      continue;
    }
    const auto deadline = Clock::now() + timeout;
    if (empty(remains.messages, kLastMessageTag, deadline) && empty(remains.notices, kLastNoticeTag, deadline)) {
      MPI_Comm_free(&remains.messages);
      MPI_Comm_free(&remains.notices);
    }
  }
  throw_if_missing(records, sizeof mine, timeout, "making a transport");
  return all.front().serial;
}

}  // namespace gradwire::transport
