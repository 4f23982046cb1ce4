// Runs tables whose ranks are threads.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/table.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {

using Ids = std::vector<std::uint64_t>;

inline TableOptions table_options(std::uint64_t rows = 1000, std::uint32_t width = 4) {
  return {.rows = rows, .width = width, .learning_rate = 1, .timeout = std::chrono::seconds(60)};
}

/// Runs `body(table)` on each rank.
inline void run_tables(int world_size, const TableOptions& options, const std::function<void(Table&)>& body) {
  run_ranks(world_size, [&](std::shared_ptr<Transport> transport) {
    Table table(std::move(transport), options);
    body(table);
  });
}

inline std::vector<float> pull(Table& table, const Ids& ids) {
  std::vector<float> rows(ids.size() * table.options().width);
  table.pull(ids, rows);
  return rows;
}

/// Returns all ids, 0 .. rows - 1.
inline Ids all_ids(const Table& table) {
  Ids ids(table.options().rows);
  for (std::uint64_t id = 0; id < ids.size(); ++id) {
    ids[id] = id;
  }
  return ids;
}

}  // namespace gradwire::test
