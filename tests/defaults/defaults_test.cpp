// Compares the table of defaults with the code, and docs/reference/defaults.md with the table. WRITE=1 writes the
// document.
#include "tests/defaults/defaults.hpp"

#include <gtest/gtest.h>

#include "gradwire/communicator.hpp"
#include "gradwire/gradwire.h"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "gradwire/tables.h"
#include "table/options.hpp"
#include "tests/support/committed_file.hpp"

namespace gradwire::test {
namespace {

// If a struct gets a new field, one of these stops compiling: give the field a row in the table, and then a name here.
[[maybe_unused]] void know(const CallOptions& all) {
  [[maybe_unused]] const auto& [codec, algorithm, reduction, weight, chunk, second_hop, intra_codec, feedback] = all;
}
[[maybe_unused]] void know(const CommunicatorOptions& all) {
  [[maybe_unused]] const auto& [timeout, checksum, ranks_per_node, link, in_flight] = all;
}
[[maybe_unused]] void know(const SessionOptions& all) {
  [[maybe_unused]] const auto& [reduction, timeout, checksum, threading, nonfinite, measure_error, compare] = all;
}
[[maybe_unused]] void know(const TensorPolicy& all) {
  [[maybe_unused]] const auto& [codec, algorithm, feedback, decay, second_hop, warmup, allow, sync, residuals,
                                max_error, roles] = all;
}
[[maybe_unused]] void know(const Policy& all) {
  [[maybe_unused]] const auto& [source, defaults, small, rules, tiers, bucket, chunk, in_flight, floor, link,
                                auto_options, batch, elastic, device, memory, save_packed, security, deterministic,
                                strict] = all;
}
[[maybe_unused]] void know(const Policy::AutoOptions& all) {
  [[maybe_unused]] const auto& [gain, dwell, window, cost] = all;
}
[[maybe_unused]] void know(const Policy::Batch& all) {
  [[maybe_unused]] const auto& [target_exposed, min_accumulation, max_accumulation, scaling] = all;
}
[[maybe_unused]] void know(const Policy::Elastic& all) {
  [[maybe_unused]] const auto& [suspect, ranks, replicate, exact, spares, expel_slower_than, trust_resets, packed] =
      all;
}
[[maybe_unused]] void know(const Policy::Device& all) {
  [[maybe_unused]] const auto& [blocks, high_priority, join] = all;
}
[[maybe_unused]] void know(const Policy::Memory& all) {
  [[maybe_unused]] const auto& [device_residuals, bind, limit, huge_pages, merges_lazily, trim_above, trim_after,
                                compact_free, compact_failures, compact_every] = all;
}
[[maybe_unused]] void know(const Policy::Security& all) {
  [[maybe_unused]] const auto& [key, lock_memory, no_dump] = all;
}
[[maybe_unused]] void know(const TableOptions& all) {
  [[maybe_unused]] const auto& [name, rows, width, optimizer, learning_rate, epsilon, initial_scale, seed, codec,
                                gradient_codec, staleness, read_own_writes, cache, copies, store, memory, timeout,
                                threading, save_packed, relayed_rows, guess_bytes] = all;
}
[[maybe_unused]] void know(const SessionTableOptions& all) {
  [[maybe_unused]] const auto& [name, rows, width, optimizer, learning_rate, epsilon, initial_scale, seed, codec,
                                gradient_codec, copies, store, memory] = all;
}
[[maybe_unused]] void know(const gradwire_call_options& all) {
  [[maybe_unused]] const auto& [size, codec, second_hop, algorithm, reduction, feedback, intra_codec] = all;
}
[[maybe_unused]] void know(const gradwire_communicator_options& all) {
  [[maybe_unused]] const auto& [size, timeout, checksum, ranks_per_node] = all;
}
[[maybe_unused]] void know(const gradwire_session_options& all) {
  [[maybe_unused]] const auto& [size, timeout, reduction, checksum, nonfinite, compare] = all;
}
[[maybe_unused]] void know(const gradwire_table_options& all) {
  [[maybe_unused]] const auto& [size, name, rows, width, optimizer, learning_rate, epsilon, initial_scale, own_writes,
                                seed, codec, gradient_codec, staleness, cache, timeout, tensor, copies, reserved, store,
                                memory] = all;
}

// Options that both kinds of tables have are one row of the table of defaults.
TEST(Defaults, OfBothKindsOfTablesAreTheSame) {
  EXPECT_EQ(table::row_lines(table::row_options(TableOptions())), table::row_lines(SessionTableOptions()));
  EXPECT_EQ(SessionTableOptions().copies, 0U);
}

// Mutations tried: CallOptions name two_shot; sessions sum; 0 is auto in C; a broadcast uses int8.
TEST(Defaults, AreThoseOfTheCode) {
  for (const DefaultTable& table : {call_and_session_defaults(), policy_defaults(), table_defaults()}) {
    int compared = 0;
    for (const DefaultRow& row : table.rows) {
      ASSERT_EQ(row.values.size(), table.columns.size()) << table.title << ": " << row.what;
      for (std::size_t i = 0; i < row.values.size(); ++i) {
        if (row.values[i].in_code) {
          EXPECT_EQ(row.values[i].in_code(), row.values[i].text)
              << table.title << ": " << row.what << ", " << table.columns[i];
          ++compared;
        }
      }
    }
    EXPECT_GT(compared, 10) << table.title;
  }
}

TEST(Defaults, AreDocumented) { EXPECT_TRUE(is_committed("docs/reference/defaults.md", document())); }

}  // namespace
}  // namespace gradwire::test
