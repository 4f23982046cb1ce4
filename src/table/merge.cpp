#include "table/merge.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::table {

MergedIds merge_ids(std::span<const std::uint64_t> ids, std::uint64_t rows, const char* call) {
  bool ascending = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= rows) {
      throw Error(ErrorCode::invalid_argument, std::string(call) + ": id " + std::to_string(ids[i]) + " (number " +
                                                   std::to_string(i) + " of " + std::to_string(ids.size()) +
                                                   ") lies outside the table of " + std::to_string(rows) + " rows");
    }
    ascending = ascending && (i == 0 || ids[i - 1] < ids[i]);
  }
  MergedIds merged;
  if (ascending) {
    merged.ids.assign(ids.begin(), ids.end());
    return merged;
  }
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  order.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    order.emplace_back(ids[i], static_cast<std::uint32_t>(i));
  }
  std::sort(order.begin(), order.end());
  merged.ids.reserve(ids.size());
  merged.place.resize(ids.size());
  for (const auto& [id, i] : order) {
    if (merged.ids.empty() || merged.ids.back() != id) {
      merged.ids.push_back(id);
    }
    merged.place[i] = static_cast<std::uint32_t>(merged.ids.size() - 1);
  }
  return merged;
}

void check_elements(const std::string& call, std::size_t ids, std::size_t elements, std::uint32_t width) {
  if (elements != ids * width) {
    throw Error(ErrorCode::invalid_argument, call + ": " + std::to_string(ids) + " ids of width " +
                                                 std::to_string(width) + " need " + std::to_string(ids * width) +
                                                 " elements, not " + std::to_string(elements));
  }
}

Floats add_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width) {
  if (merged.as_given()) {
    return {rows.begin(), rows.end()};
  }
  Floats sums(merged.ids.size() * width);
  add_rows(merged, rows, width, sums);
  return sums;
}

void add_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width, std::span<float> sums) {
  const std::size_t count = merged.as_given() ? merged.ids.size() : merged.place.size();
  for (std::size_t i = 0; i < count; ++i) {
    float* sum = sums.data() + merged.place_of(i) * width;
    for (std::uint32_t j = 0; j < width; ++j) {
      sum[j] += rows[i * width + j];
    }
  }
}

Floats last_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width) {
  if (merged.as_given()) {
    return {rows.begin(), rows.end()};
  }
  Floats last(merged.ids.size() * width);
  for (std::size_t i = 0; i < merged.place.size(); ++i) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                last.begin() + static_cast<std::ptrdiff_t>(std::size_t{merged.place[i]} * width));
  }
  return last;
}

void spread_rows(const MergedIds& merged, std::span<const float> rows, std::uint32_t width, std::span<float> out) {
  for (std::size_t i = 0; i < out.size() / width; ++i) {
    std::copy_n(rows.data() + merged.place_of(i) * width, width, out.data() + i * width);
  }
}

}  // namespace gradwire::table
