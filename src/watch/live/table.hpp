// Ranks as the rows of a table that is as wide as its screen, and numbers as short texts. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "watch/live/view.hpp"

namespace gradwire::watch::live {

/// "0.52", "12.3", "1520": three digits that matter.
[[nodiscard]] std::string in_short(double value);
[[nodiscard]] std::string bytes_in_short(double bytes);
[[nodiscard]] std::string time_in_short(double seconds);
[[nodiscard]] std::string percent(double share);
/// Of a count; a damaged file may say anything.
[[nodiscard]] std::string whole_number(double value);
/// Empty for one that runs.
[[nodiscard]] std::string state_name(RankState state);

struct Column {
  const char* head;
  bool right;
  int importance;  // those of the lowest numbers are shown where not all fit; 0: always
  std::string (*cell)(const RankRow&);
  std::size_t least = 0;  // width
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> cells;  // by column; the first is the head
};

/// The columns that matter most, as many as fit the width; at least rank and state.
[[nodiscard]] Table table_of(std::span<const RankRow> rows, std::size_t width);
/// Row 0 is the head.
[[nodiscard]] std::string row_text(const Table& table, std::size_t row);

}  // namespace gradwire::watch::live
