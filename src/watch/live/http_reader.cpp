#include "watch/live/http_reader.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <set>

#include "watch/live/fetch.hpp"

namespace gradwire::watch::live {

FolderSnapshot HttpReader::read() const {
  constexpr int kMostRanks = 4096;
  FolderSnapshot snapshot;
  snapshot.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::set<int> seen;
  int ranks = 1;  // that have a port of their own
  for (int rank = 0; rank < ranks && target_.port + rank <= std::numeric_limits<std::uint16_t>::max(); ++rank) {
    if (seen.contains(rank)) {
      continue;  // a thread of a process that has answered
    }
    const std::string place = target_.address + ":" + std::to_string(target_.port + rank);
    try {
      const auto port = static_cast<std::uint16_t>(target_.port + rank);
      for (RankValues& values : ranks_in(fetch(target_.address, port, token_), snapshot.time)) {
        ranks = std::min(std::max(ranks, target_.add_rank ? values.world_size : 1), kMostRanks);
        seen.insert(values.name.second);
        snapshot.ranks.push_back(std::move(values));
      }
    } catch (const std::exception& error) {
      if (rank == 0) {
        snapshot.problem = place + ": " + error.what();
        return snapshot;
      }
      snapshot.skipped.push_back({place, error.what()});
    }
  }
  return snapshot;
}

}  // namespace gradwire::watch::live
