// Ranks as the rows of a table that is as wide as its screen, and numbers as short texts. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "watch/live/view.hpp"

namespace gradwire::watch::live {

/// "0.52", "12.3", "1520": three significant digits.
[[nodiscard]] std::string in_short(double value);
[[nodiscard]] std::string bytes_in_short(double bytes);
[[nodiscard]] std::string time_in_short(double seconds);
[[nodiscard]] std::string percent(double share);
/// The text of a count, which may be any number in a damaged file.
[[nodiscard]] std::string whole_number(double value);
/// The name of a state; empty for a rank that runs.
[[nodiscard]] std::string state_name(RankState state);

struct Column {
  const char* head;
  bool right;
  int importance;  // where not all columns fit, those of the lowest numbers are shown; 0: always
  std::string (*cell)(const RankRow&);
  std::size_t least = 0;  // least width
};

struct RankTable {
  std::vector<Column> columns;
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> cells;  // by column; the first is the head
};

/// The most important columns, as many as fit the width; at least rank and state.
[[nodiscard]] RankTable table_of(std::span<const RankRow> rows, std::size_t width);
/// Row 0 is the head.
[[nodiscard]] std::string row_text(const RankTable& table, std::size_t row);

}  // namespace gradwire::watch::live
