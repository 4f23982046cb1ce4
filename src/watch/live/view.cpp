#include "watch/live/view.hpp"

#include <algorithm>

#include "observe/late_ranks.hpp"

namespace gradwire::watch::live {
void mark_slow(std::span<RankRow> rows) {
  std::vector<observe::RankFromOutside> ranks;
  for (const RankRow& row : rows) {
    observe::RankFromOutside& rank = ranks.emplace_back(observe::RankFromOutside{.part = row.now.name.first});
    rank.agreed = row.now.slow;
    if (row.state == RankState::running && row.rates.exposed) {
      rank.exposed = *row.rates.exposed;
    }
  }
  const std::vector<observe::WaitedFor> waits = observe::waited_for(ranks);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].state == RankState::running && waits[i].is_slow) {
      rows[i].state = RankState::slow;
    }
  }
}

std::vector<RankRow> rows_of(const FolderSnapshot& snapshot, const RateTracker& history) {
  std::vector<RankRow> rows;
  for (const RankValues& rank : snapshot.ranks) {
    RankRow row;
    row.now = rank;
    row.age = std::max(0.0, snapshot.time - rank.written);
    row.state = rank.ended                      ? RankState::ended
                : row.age > kSilentSeconds      ? RankState::silent
                : history.is_stalled(rank.name) ? RankState::stalled
                                                : RankState::running;
    const bool over = row.state == RankState::ended || row.state == RankState::silent;
    row.rates = over ? rates_between(nullptr, rank) : history.rates(rank.name);
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const RankRow& a, const RankRow& b) { return a.now.name < b.now.name; });
  mark_slow(rows);
  return rows;
}

}  // namespace gradwire::watch::live
