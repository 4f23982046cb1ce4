#include "transport/mpi_remains.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/backoff.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"

namespace gradwire::transport {
namespace {

using Clock = Backoff::Clock;

struct Kept {
  std::mutex mutex;
  std::vector<MpiRemains> remains;  // by serial
  std::uint32_t serial = 0;         // the latest
};
Kept& kept() {  // never destroyed: transports may outlive static objects
  static auto* const instance = new Kept;
  return *instance;
}

// What a rank says before a transport is made.
struct Entry {
  std::uint32_t here = 1;
  std::uint32_t serial = 0;
  std::array<std::uint32_t, 16> left{};  // serials of what it has left behind with these ranks; 0: none
};

bool same_ranks(MPI_Comm a, MPI_Comm b) {
  int compared = MPI_UNEQUAL;
  check_mpi(MPI_Comm_compare(a, b, &compared), "MPI_Comm_compare");
  return compared == MPI_CONGRUENT || compared == MPI_IDENT;
}

// Tells all others that nothing comes behind this, and reads what came before the same from them. Messages between two
// ranks are found in the order in which they were sent. False: something did not come to an end.
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

}  // namespace

void leave_behind(const MpiRemains& remains) {
  const std::lock_guard lock(kept().mutex);
  kept().remains.push_back(remains);
}

std::size_t left_behind() {
  const std::lock_guard lock(kept().mutex);
  return kept().remains.size();
}

std::uint32_t begin_transport(MPI_Comm comm, std::chrono::milliseconds timeout) {
  Entry mine;
  std::vector<MpiRemains> candidates;
  {
    const std::lock_guard lock(kept().mutex);
    mine.serial = kept().serial;
    for (const MpiRemains& remains : kept().remains) {
      if (candidates.size() < mine.left.size() && same_ranks(remains.messages, comm)) {
        mine.left[candidates.size()] = remains.serial;
        candidates.push_back(remains);
      }
    }
  }
  const Records records = exchange_records(comm, std::as_bytes(std::span(&mine, 1)), timeout);
  throw_if_missing(records, sizeof mine, timeout, "making a transport");
  std::vector<Entry> all(records.all.size() / sizeof mine);
  std::memcpy(all.data(), records.all.data(), records.all.size());
  std::uint32_t serial = 0;
  for (const Entry& entry : all) {
    serial = std::max(serial, entry.serial + 1);
  }
  {
    const std::lock_guard lock(kept().mutex);
    kept().serial = serial;
  }
  // Every rank finds the same ones, in the same order.
  for (MpiRemains& remains : candidates) {
    const bool everywhere = std::all_of(all.begin(), all.end(), [&](const Entry& entry) {
      return std::find(entry.left.begin(), entry.left.end(), remains.serial) != entry.left.end();
    });
    if (!everywhere) {
      continue;
    }
    {
      const std::lock_guard lock(kept().mutex);
      std::erase_if(kept().remains, [&](const MpiRemains& each) { return each.serial == remains.serial; });
    }
    const auto deadline = Clock::now() + timeout;
    if (empty(remains.messages, kLastMessageTag, deadline) && empty(remains.notices, kLastNoticeTag, deadline)) {
      MPI_Comm_free(&remains.messages);
      MPI_Comm_free(&remains.notices);
    }
  }
  return serial;
}

}  // namespace gradwire::transport
