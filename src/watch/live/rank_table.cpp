#include "watch/live/rank_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace gradwire::watch::live {
namespace {

template <typename Format>
std::string or_dash(const std::optional<double>& value, Format&& format) {
  return value ? format(*value) : "-";
}

constexpr std::size_t kCodecLeast = 8;
constexpr int kExtra = 20;  // columns of this importance get the width that the codec's whole name leaves

std::string codec_cell(const RankRow& row) { return row.now.codec.empty() ? "-" : row.now.codec; }

// The facts that any rank of the job has; others get no column.
struct Facts {
  bool parts = false;
  bool steps = false;
  bool calls = false;
  bool tiers = false;
  bool ratio = false;
  bool codec = false;
};

Facts facts_of(std::span<const RankRow> rows) {
  Facts known;
  for (const RankRow& row : rows) {
    const RankCounters& counters = row.now.counters;
    known.parts = known.parts || row.now.name.first != rows.front().now.name.first;
    known.calls = known.calls || counters.replaced_calls > 0;
    known.steps = known.steps || counters.waits > 0;
    known.tiers = known.tiers || row.now.has_tiers;
    known.ratio = known.ratio || counters.bytes_uncompressed > 0;
    known.codec = known.codec || !row.now.codec.empty();
  }
  if (!known.calls) {  // a job that has just begun will have steps
    known.steps = known.tiers = known.ratio = known.codec = true;
  }
  return known;
}

// In the order of display.
std::vector<Column> all_columns(const Facts& known) {
  std::vector<Column> columns{
      {"rank", true, 0, [](const RankRow& row) { return std::to_string(row.now.name.second); }},
      {"part", false, known.parts ? 1 : kExtra, [](const RankRow& row) { return row.now.name.first; }},
      {"state", false, 0, [](const RankRow& row) { return state_name(row.state); }, 7}};
  const auto add = [&](bool shown, const Column& column) {
    if (shown) {
      columns.push_back(column);
    }
  };
  add(known.steps, {"step/s", true, 2, [](const RankRow& row) { return or_dash(row.rates.steps, in_short); }});
  add(known.calls, {"calls/s", true, 3, [](const RankRow& row) { return or_dash(row.rates.calls, in_short); }});
  add(true, {"exposed", true, 4, [](const RankRow& row) { return or_dash(row.rates.exposed, percent); }});
  add(known.tiers, {"intra/s", true, 8, [](const RankRow& row) { return or_dash(row.rates.intra, bytes_in_short); }});
  add(known.tiers, {"inter/s", true, 7, [](const RankRow& row) { return or_dash(row.rates.inter, bytes_in_short); }});
  add(true, {"sent/s", true, known.tiers ? kExtra + 1 : 7,
             [](const RankRow& row) { return or_dash(row.rates.sent, bytes_in_short); }});
  add(known.ratio, {"ratio", true, 5, [](const RankRow& row) { return or_dash(row.rates.ratio, in_short); }});
  add(known.codec, {"codec", false, 6, codec_cell, kCodecLeast});
  add(true, {"age", true, 9, [](const RankRow& row) { return time_in_short(row.age); }});
  add(true, {"errors", true, 10, [](const RankRow& row) { return whole_number(row.now.counters.errors); }});
  add(known.steps, {"steps", true, kExtra + 2, [](const RankRow& row) {
                      return whole_number(std::max(row.now.counters.steps_published, row.now.counters.waits));
                    }});
  add(true, {"sent", true, kExtra + 3, [](const RankRow& row) { return bytes_in_short(row.now.counters.bytes_sent); }});
  add(true, {"dropped", true, kExtra + 4, [](const RankRow& row) { return whole_number(row.now.counters.dropped); }});
  return columns;
}

}  // namespace

std::string in_short(double value) {
  std::array<char, 32> text{};
  const char* const format = value >= 1e6 ? "%.2g" : value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f";
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string bytes_in_short(double bytes) {
  static constexpr std::array<const char*, 6> kUnits{"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; unit + 1 < kUnits.size() && bytes >= 999.5; ++unit) {
    bytes /= 1000;
  }
  return (unit == 0 ? std::to_string(std::lround(bytes)) : in_short(bytes)) + kUnits[unit];
}

std::string time_in_short(double seconds) {
  static constexpr std::array<std::pair<double, const char*>, 3> kUnits{{{86400, "d"}, {3600, "h"}, {60, "min"}}};
  for (const auto& [length, name] : kUnits) {
    if (seconds >= 2 * length) {
      return std::to_string(static_cast<long long>(std::min(seconds / length, 1e9))) + name;
    }
  }
  return std::to_string(static_cast<long long>(seconds)) + "s";
}

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + "%"; }

std::string whole_number(double value) { return value < 1e15 ? std::to_string(std::llround(value)) : in_short(value); }

std::string state_name(RankState state) {
  static constexpr std::array<const char*, 5> kNames{"", "slow", "stalled", "silent", "ended"};
  return kNames[static_cast<std::size_t>(state)];
}

RankTable table_of(std::span<const RankRow> rows, std::size_t width) {
  const std::vector<Column> all = all_columns(facts_of(rows));
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> cells;
  std::size_t codec = all.size();
  std::size_t longest_codec = 0;
  for (const Column& column : all) {
    std::vector<std::string> texts{column.head};
    for (const RankRow& row : rows) {
      texts.push_back(column.cell(row));
    }
    std::size_t widest = column.least;
    for (const std::string& text : texts) {
      widest = std::max(widest, text.size());
    }
    if (column.cell == codec_cell) {
      codec = widths.size();
      longest_codec = std::exchange(widest, kCodecLeast);
    }
    widths.push_back(widest);
    cells.push_back(std::move(texts));
  }
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return all[a].importance < all[b].importance; });
  std::set<std::size_t> chosen;
  std::size_t used = 0;
  const auto widen_codec = [&] {
    if (chosen.contains(codec) && used < width) {
      const std::size_t more = std::min(longest_codec - widths[codec], width - used);
      widths[codec] += more;
      used += more;
    }
  };
  for (const std::size_t i : order) {
    if (all[i].importance >= kExtra) {
      widen_codec();
    }
    const std::size_t more = widths[i] + (chosen.empty() ? 0 : 2);
    if (all[i].importance == 0 || used + more <= width) {
      chosen.insert(i);
      used += more;
    }
  }
  RankTable table;
  for (const std::size_t i : chosen) {
    table.columns.push_back(all[i]);
    table.widths.push_back(widths[i]);
    table.cells.push_back(std::move(cells[i]));
  }
  return table;
}

std::string row_text(const RankTable& table, std::size_t row) {
  std::string line;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::string cell = table.cells[i][row];
    const std::size_t width = table.widths[i];
    if (cell.size() > width) {
      cell = cell.substr(0, width - 2) + "..";
    }
    const std::string blanks(width - cell.size(), ' ');
    line += (i == 0 ? "" : "  ") + (table.columns[i].right ? blanks + cell : cell + blanks);
  }
  return line;
}

}  // namespace gradwire::watch::live
