#include "cli/live/view.hpp"

#include <algorithm>
#include <map>

#include "cli/waiting.hpp"

namespace gradwire::cli::live {
namespace {

constexpr double kSilentSeconds = 15;  // three turns of a file that is written every 5 s

}  // namespace

void mark_slow(std::span<RankRow> rows) {
  const auto compares = [](const RankRow& row) {
    return row.state == RankState::running && row.rates.exposed.has_value();
  };
  const bool told = std::any_of(rows.begin(), rows.end(), [](const RankRow& row) { return row.now.slow.has_value(); });
  if (told) {
    for (RankRow& row : rows) {
      if (row.state == RankState::running && row.now.slow.value_or(false)) {
        row.state = RankState::slow;
      }
    }
    return;
  }
  std::map<std::string, std::vector<RankRow*>> parts;
  for (RankRow& row : rows) {
    if (compares(row)) {
      parts[row.now.name.first].push_back(&row);
    }
  }
  for (const auto& [part, alike] : parts) {
    std::vector<double> exposed;
    for (const RankRow* row : alike) {
      exposed.push_back(*row->rates.exposed);
    }
    const std::vector<WaitedFor> waits = waited_for(exposed);
    for (std::size_t i = 0; i < alike.size(); ++i) {
      alike[i]->state = waits[i].is_slow ? RankState::slow : alike[i]->state;
    }
  }
}

std::vector<RankRow> rows_of(const Snapshot& snapshot, const History& history) {
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

}  // namespace gradwire::cli::live
