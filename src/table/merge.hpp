// Brings a caller's ids and rows into the form that the rest of a table needs: ids ascending, each once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "table/floats.hpp"

namespace gradwire::table {

struct MergedIds {
  std::vector<std::uint64_t> ids;    // ascending, each once
  std::vector<std::uint32_t> place;  // for each of the caller's ids, its place in `ids`

  /// Whether the caller's ids had this form already.
  [[nodiscard]] bool as_given() const noexcept { return place.empty(); }
  [[nodiscard]] std::size_t place_of(std::size_t i) const noexcept { return as_given() ? i : place[i]; }
};

/// Throws Error(invalid_argument) that names `call` and the first id that is not below `rows`.
[[nodiscard]] MergedIds merge_ids(std::span<const std::uint64_t> ids, std::uint64_t rows, const char* call);
/// Throws Error(invalid_argument) that names `call` unless there are `width` elements for each of `ids` ids.
void check_elements(const std::string& call, std::size_t ids, std::size_t elements, std::uint32_t width);
/// One row for each merged id: the sum of its rows, in the order given.
[[nodiscard]] Floats add_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width);
/// The same, added to `sums`.
void add_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width, std::span<float> sums);
/// One row for each merged id: the last of its rows.
[[nodiscard]] Floats last_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width);
/// Row i of `out` is that of the caller's id i; `rows` has one for each merged id.
void spread_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width, std::span<float> out);

}  // namespace gradwire::table
