#include "watch/live/http_reader.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <set>

#include "gradwire/error.hpp"
#include "watch/live/fetch.hpp"

namespace gradwire::watch::live {
namespace {

// Where a rank runs on another host, any user of this host may listen at the rank's port, and must not get the token.
void refuse_another_user(std::uint16_t of_rank_0, std::uint16_t port) {
  const auto user = user_of_loopback(port);
  const auto expected = user_of_loopback(of_rank_0);
  if (user && expected && *user != *expected) {
    throw Error(ErrorCode::invalid_argument, "user " + std::to_string(*user) + " listens there, and user " +
                                                 std::to_string(*expected) +
                                                 " at the port of rank 0, so it is no rank of this job and does not "
                                                 "get the token");
  }
}

}  // namespace

FolderSnapshot HttpReader::read() const {
  constexpr int kMostRanks = 4096;
  FolderSnapshot snapshot;
  snapshot.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::set<int> seen;
  int ranks = 1;  // the number of ranks that have ports of their own
  for (int rank = 0; rank < ranks && target_.port + rank <= std::numeric_limits<std::uint16_t>::max(); ++rank) {
    if (seen.contains(rank)) {
      continue;  // a thread of a process that has answered
    }
    const std::string place = target_.address + ":" + std::to_string(target_.port + rank);
    try {
      const auto port = static_cast<std::uint16_t>(target_.port + rank);
      if (rank > 0 && !token_.empty() && target_.address == "127.0.0.1") {
        refuse_another_user(target_.port, port);
      }
      for (RankValues& values : ranks_in(fetch(target_.address, port, token_), snapshot.time)) {
        ranks = std::min(std::max(ranks, target_.add_rank ? values.world_size : 1), kMostRanks);
        seen.insert(values.name.second);
        snapshot.ranks.push_back(std::move(values));
      }
    } catch (const std::exception& error) {
      if (rank == 0) {
        snapshot.problem = place + ": " + error.what() +
                           "; name the address of the job's GRADWIRE_METRICS=http:..., and with --token-file the token "
                           "that it asks for";
        return snapshot;
      }
      snapshot.skipped.push_back({place, error.what()});
    }
  }
  return snapshot;
}

}  // namespace gradwire::watch::live
