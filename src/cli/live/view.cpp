#include "cli/live/view.hpp"

#include <algorithm>

namespace gradwire::cli::live {
namespace {

constexpr double kSilentSeconds = 15;     // three turns of a file that is written every 5 s
constexpr double kNoticeableShare = 0.1;  // of the time: below it, shares differ in healthy jobs too

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

void mark_slow(std::span<RankRow> rows) {
  const auto compares = [](const RankRow& row) {
    return row.state == RankState::running && row.rates.exposed.has_value();
  };
  const bool told = std::any_of(rows.begin(), rows.end(), [](const RankRow& row) { return row.now.slow.has_value(); });
  std::vector<RankRow*> slow;
  for (RankRow& row : rows) {
    if (told) {
      if (row.state == RankState::running && row.now.slow.value_or(false)) {
        slow.push_back(&row);
      }
      continue;
    }
    std::vector<double> others;
    for (const RankRow& other : rows) {
      if (&other != &row && compares(other) && other.now.name.first == row.now.name.first) {
        others.push_back(*other.rates.exposed);
      }
    }
    if (compares(row) && !others.empty() && *row.rates.exposed + kNoticeableShare <= median(others)) {
      slow.push_back(&row);
    }
  }
  for (RankRow* row : slow) {
    row->state = RankState::slow;
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
