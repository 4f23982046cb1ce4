// Tests that compaction of the page pool moves rows of a session's tables, but none that a saved copy shares.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gradwire/session.hpp"
#include "memory/process_pool.hpp"
#include "session/parts/tables/replicated_table.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

constexpr std::uint64_t kPageRows = 64;
constexpr std::uint64_t kPages = 64;
constexpr std::uint32_t kWideRow = 512;  // 64 rows take 128 KiB
constexpr std::size_t kPageBytes = kPageRows * kWideRow * sizeof(float);

SessionTableOptions wide_rows() {
  return {.name = "users", .rows = kPageRows * kPages, .width = kWideRow, .learning_rate = 1};
}

void push_page(Session& session, TableId table, std::uint64_t page) {
  std::vector<std::uint64_t> ids(kPageRows);
  std::iota(ids.begin(), ids.end(), page * kPageRows);
  session.push(table, ids, std::vector<float>(kPageRows * kWideRow, -1.0F - static_cast<float>(page)));
  session.finish();
}

/// Fills the table while other blocks are taken between its pages, and lets compaction be due at the next step's end.
void fill_sparsely(Session& session, TableId table) {
  std::vector<memory::Block> between;
  for (std::uint64_t page = 0; page < kPages; ++page) {
    push_page(session, table, page);
    between.emplace_back(kPageBytes, memory::MemoryUse::copies);
  }
  between.clear();
  memory::PagePool& pool = memory::page_pool();
  memory::PagePoolOptions options = pool.options();
  options.compact_failures = 1;
  pool.configure(options);
  error_of([&] { pool.require(std::uint64_t{1} << 60, "the test needs"); });
  ASSERT_TRUE(pool.compaction_due());
}

/// The most that the pool may hold after compaction.
std::uint64_t aimed_reserve() {
  const double in_use = static_cast<double>(memory::page_pool().statistics().in_use);
  return static_cast<std::uint64_t>(memory::PagePool::kAimedReserve * in_use) + memory::kRegionBytes;
}

void expect_rows(Session& session, TableId table) {
  std::vector<std::uint64_t> ids(kPageRows * kPages);
  std::iota(ids.begin(), ids.end(), 0U);
  std::vector<float> rows(ids.size() * kWideRow);
  ASSERT_TRUE(session.pull(table, ids, rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i], 1.0F + static_cast<float>(i / (kPageRows * kWideRow))) << i;
  }
}

// Mutation tried: the part of tables offers no blocks.
TEST(CompactedTables, RowsMoveToFullerRegions) {
  run_ranks(1, [](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy{}, {});
    const TableId table = session.add_table(wide_rows());
    fill_sparsely(session, table);
    const memory::PagePoolStatistics before = memory::page_pool().statistics();
    ASSERT_GT(before.reserved, aimed_reserve() + memory::kRegionBytes);
    session.finish();
    const memory::PagePoolStatistics after = memory::page_pool().statistics();
    EXPECT_LE(after.reserved, aimed_reserve());
    EXPECT_GT(after.moved, before.moved);
    expect_rows(session, table);
  });
  memory::configure_page_pool({}, std::nullopt, 1);
}

// A thread that writes a checkpoint may read them at any time. Mutation tried: saved copies are not counted.
TEST(CompactedTables, RowsThatASavedCopySharesAreNotOffered) {
  const ScratchFolder folder;
  for (const bool with_store : {false, true}) {
    SCOPED_TRACE(with_store ? "in a file" : "in memory");
    SessionTableOptions options = wide_rows();
    options.copies = 1;
    options.store = with_store ? "file:" + folder.path().string() : "";
    options.memory = with_store ? 8U << 20U : 0U;
    session::ReplicatedTable table(options);
    table.enter({.members = {0}, .nodes = {0}}, 0);
    const std::vector<float> row(kWideRow, 1.0F);
    ASSERT_TRUE(table.restore({.id = 7, .values = row, .accumulators = {}}));
    const auto offered = [&] {
      std::vector<memory::Block*> blocks;
      table.add_blocks(blocks);
      return blocks.size();
    };
    EXPECT_GT(offered(), 0U);
    table::SavedTable first;
    table::SavedTable second;
    table.save(first);
    table.save(second);
    EXPECT_EQ(offered(), 0U);
    first = {};
    EXPECT_EQ(offered(), 0U);
    second = {};
    EXPECT_GT(offered(), 0U);
  }
}

}  // namespace
}  // namespace gradwire::test
