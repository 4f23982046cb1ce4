// Tests the ranks of a table as state machines, with messages that a seeded scheduler delivers in random order: which
// updates reads may miss, what snapshots hold, and what travels. There are no threads and no clocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "service_world.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::table {
namespace {

// The following tests are about reads.

struct Lag {
  std::uint64_t most = 0;      // most updates, older than the reader's clock, that a read missed
  std::uint64_t reported = 0;  // the statistics' maximum age
};

/// Each rank counts its clock in a row of its own; every read says how many of those counts it misses. Rank 0 is
/// scheduled most often, so that only a bound holds it back.
Lag run_counters(TableOptions o, unsigned seed) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kClocks = 40;
  o.cache_bytes = 1 << 16;
  World world(kRanks, o, seed);
  Ids counters;
  for (int rank = 0; rank < kRanks; ++rank) {
    counters.push_back(static_cast<std::uint64_t>(rank) * 10);
  }
  std::vector<std::shared_ptr<Pull>> pulls(kRanks);
  Lag lag;
  const auto run = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (pulls[r] != nullptr) {
      if (!pulls[r]->done()) {
        return;  // the rank waits
      }
      for (const float count : pulls[r]->rows) {
        const auto seen = static_cast<std::uint64_t>(count);
        lag.most = std::max(lag.most, pulls[r]->clock - std::min(pulls[r]->clock, seen));
      }
    }
    if (world[rank].clock() < kClocks) {
      world.push(rank, counters[r], -1);
      world[rank].tick();
      pulls[r] = world[rank].start_pull(counters, false);
    }
  };
  for (int i = 0; i < 30000; ++i) {
    const auto choice = world.random() % 16;
    if (choice < 10) {
      world.deliver();
    } else {
      run(choice < 13 ? 0 : static_cast<int>(choice - 12));
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(world[rank].clock(), kClocks) << "rank " << rank << " hangs";
    lag.reported = std::max(lag.reported, world[rank].statistics().maximum_age);
  }
  return lag;
}

TEST(Staleness, ReadsNeverMissUpdatesOlderThanTheBound) {
  for (const std::uint64_t staleness : {0, 1, 3}) {
    std::uint64_t most = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      for (const bool read_own_writes : {true, false}) {
        TableOptions o = options(staleness);
        o.read_own_writes = read_own_writes;
        const Lag lag = run_counters(o, seed);
        ASSERT_LE(lag.most, staleness) << "seed " << seed;
        ASSERT_LE(lag.reported, staleness) << "seed " << seed;
        ASSERT_LE(lag.most, lag.reported) << "seed " << seed;
        most = std::max(most, lag.most);
      }
    }
    EXPECT_EQ(most, staleness) << "the bound is not what limits the age";
  }
}

// Each pull also asks for rows that have left memory, so that its answer is made while other messages come.
TEST(Staleness, BoundsHoldForRowsThatComeFromAFile) {
  const test::ScratchFolder folder;
  std::uint64_t reads = 0;
  for (const std::uint64_t staleness : {0, 2}) {
    for (unsigned seed = 0; seed < 3; ++seed) {
      TableOptions o = options(staleness);
      o.rows = 20000;
      o.width = 512;
      o.store = "file:" + folder.path().string();
      o.memory = 1200 << 10;
      World world(3, o, seed);
      const std::uint32_t width = o.width;
      std::vector<float> minus(width, -1.0F);
      std::vector<std::uint64_t> counts(3);
      std::vector<std::shared_ptr<Pull>> pulls(3);
      const Ids counters{0, 7, 14};
      const auto ended = [&] {
        return std::all_of(pulls.begin(), pulls.end(), [&](const auto& p) { return p != nullptr && p->done(); }) &&
               counts == std::vector<std::uint64_t>(3, 30);
      };
      for (int i = 0; i < 100000 && !ended(); ++i) {
        const int rank = static_cast<int>(world.random() % 3);
        const auto r = static_cast<std::size_t>(rank);
        if (world.random() % 3 != 0) {
          world.deliver();
          continue;
        }
        if (pulls[r] != nullptr && !pulls[r]->done()) {
          continue;
        }
        for (std::size_t c = 0; pulls[r] != nullptr && c < counters.size(); ++c) {
          const auto seen = static_cast<std::uint64_t>(pulls[r]->rows[c * width + world.random() % width]);
          ASSERT_LE(pulls[r]->clock - std::min(pulls[r]->clock, seen), staleness) << "seed " << seed;
          ASSERT_LE(seen, counts[c]);
        }
        if (counts[r] < 30) {
          world[rank].write(MessageKind::push, std::span(&counters[r], 1), minus.data());
          ++counts[r];
          Ids others;
          for (std::uint64_t j = 0; j < 40; ++j) {
            others.push_back(100 + counts[r] * 600 + 3 * j + r);
          }
          world[rank].write(MessageKind::push, others, std::vector<float>(others.size() * width, 1.0F).data());
          world[rank].tick();
          Ids asked = counters;
          for (std::uint64_t j = 0; j < 20; ++j) {
            asked.push_back(100 + (1 + world.random() % counts[r]) * 600 + 3 * j + r);
          }
          std::sort(asked.begin(), asked.end());
          asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
          pulls[r] = world[rank].start_pull(asked, false);
        }
      }
      world.deliver_all();
      for (int rank = 0; rank < 3; ++rank) {
        ASSERT_EQ(world[rank].clock(), 30U) << "rank " << rank << " hangs, seed " << seed;
        const std::vector<float> rows = world.pull(rank, counters);
        EXPECT_EQ(rows[0], 30);
        EXPECT_EQ(rows[2 * width + 5], 30);
        reads += world[rank].statistics().store.reads;
      }
    }
  }
  EXPECT_GT(reads, 100U) << "rows stayed in memory";
}

TEST(Staleness, WithoutABoundTheyDo) {  // the control of the test above
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Lag lag = run_counters(options(TableOptions::kUnbounded), seed);
    EXPECT_GT(lag.most, 3U) << "seed " << seed;
    EXPECT_GE(lag.reported, lag.most) << "seed " << seed;
  }
}

TEST(Staleness, ARankSeesItsOwnWritesUnlessItAskedNotTo) {
  for (const bool read_own_writes : {true, false}) {
    TableOptions o = options(5);
    o.read_own_writes = read_own_writes;
    o.cache_bytes = 1 << 16;
    World world(2, o, 1);
    const std::uint64_t id = id_of(world, 1);
    EXPECT_EQ(world.pull(0, {id})[0], 0.0F);
    world.push(0, id, -3);
    EXPECT_EQ(world.pull(0, {id})[0], read_own_writes ? 3.0F : 0.0F);
    for (int i = 0; i < 6; ++i) {
      world[0].tick();
      world[1].tick();
    }
    EXPECT_EQ(world.pull(0, {id})[0], 3.0F);
  }
}

TEST(Staleness, AWriteDuringAPrefetchIsNotForgotten) {
  TableOptions o = options(5);
  o.cache_bytes = 1 << 16;
  World world(2, o, 1);
  const std::uint64_t id = id_of(world, 1);
  const auto prefetch = world[0].start_pull({id}, true);
  EXPECT_TRUE(world[0].prefetching(Ids{id}));
  world.push(0, id, -3);
  world.deliver_all();
  EXPECT_TRUE(prefetch->done());
  EXPECT_FALSE(world[0].prefetching(Ids{id}));
  EXPECT_EQ(world.pull(0, {id})[0], 3.0F);
}

// The following tests are about traffic.

TEST(Traffic, UnchangedRowsCostTheirIdsAlone) {
  TableOptions o = options(0);
  o.width = 64;
  o.cache_bytes = 1 << 20;
  World world(2, o, 1);
  Ids ids;
  for (std::uint64_t id = 0; id < 1000; ++id) {
    if (world[0].owner(id) == 1) {
      ids.push_back(id);
    }
  }
  static_cast<void>(world.pull(0, ids));
  EXPECT_GT(world.bytes, ids.size() * 64 * 4);
  world[0].tick();
  world[1].tick();
  world.deliver_all();
  world.bytes = world.messages = 0;
  static_cast<void>(world.pull(0, ids));
  EXPECT_EQ(world.messages, 2U);
  EXPECT_LE(world.bytes, 2 * sizeof(MessageHead) + ids.size() + 4);  // for neighbouring ids, a byte per id
  EXPECT_EQ(world[0].statistics().rows_unchanged, ids.size());
}

TEST(Traffic, OnlyRowsThatChangedTravel) {
  TableOptions o = options(0);
  o.cache_bytes = 1 << 20;
  World world(2, o, 1);
  const Ids ids{id_of(world, 1, 0), id_of(world, 1, 100), id_of(world, 1, 200)};
  static_cast<void>(world.pull(0, ids));
  world.push(1, ids[1], -2);
  for (int rank : {0, 1}) {
    world[rank].tick();
  }
  world.deliver_all();
  EXPECT_EQ(world.pull(0, ids), (std::vector<float>{0, 2, 0}));
  EXPECT_EQ(world[0].statistics().rows_received, 4U);
  EXPECT_EQ(world[0].statistics().rows_unchanged, 2U);
}

TEST(Traffic, FreshRowsAndOwnRowsSendNothing) {
  TableOptions o = options(2);
  o.cache_bytes = 1 << 20;
  World world(2, o, 1);
  const Ids ids{id_of(world, 0), id_of(world, 1)};
  static_cast<void>(world.pull(0, Ids{ids[1]}));
  world[0].tick();
  world.deliver_all();
  world.messages = 0;
  static_cast<void>(world.pull(0, ids));
  world.push(0, ids[0], 1);
  world.deliver_all();
  EXPECT_EQ(world.messages, 0U);
  EXPECT_EQ(world[0].statistics().rows_cached, 1U);
  EXPECT_EQ(world[0].statistics().rows_own, 1U);
}

TEST(Traffic, ACacheThatIsTooSmallChangesNothingButTraffic) {
  for (const std::uint64_t rows : {0, 1, 3, 100}) {
    TableOptions o = options(0);
    o.cache_bytes = rows * RowCache::bytes_per_row(1);
    World world(3, o, 9);
    std::vector<float> expected(50);
    Ids all(50);
    for (std::uint64_t id = 0; id < 50; ++id) {
      all[id] = id;
    }
    for (int clock = 0; clock < 20; ++clock) {
      for (int rank = 0; rank < 3; ++rank) {
        const std::uint64_t id = world.random() % 50;
        world.push(rank, id, -1);
        ++expected[id];
        world[rank].tick();
      }
      for (int rank = 0; rank < 3; ++rank) {
        ASSERT_EQ(world.pull(rank, all), expected) << rows << " rows cached, clock " << clock;
      }
    }
  }
}

// The following tests are about snapshots.

TEST(Snapshot, HoldsWhatEachRankPushedBeforeItsOwnCutAndNothingElse) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    World world(4, options(TableOptions::kUnbounded), seed);
    const std::uint64_t a = id_of(world, 1);
    const std::uint64_t b = id_of(world, 2);
    float before_cut = 0;
    std::vector<int> actions(4);
    for (bool acted = true; acted;) {  // 60 random actions per rank; the 30th cuts
      acted = false;
      for (int i = 0; i < 40; ++i) {
        const int rank = static_cast<int>(world.random() % 4);
        int& done = actions[static_cast<std::size_t>(rank)];
        if (world.random() % 2 == 0 || done == 60) {
          world.deliver();
        } else if (++done == 30) {
          ASSERT_EQ(world[rank].start_cut(), 0U);
        } else {  // keeps the planted invariant a + b = 0
          const auto x = static_cast<float>(world.random() % 100);
          const float values[] = {-x, x};
          world[rank].write(MessageKind::push, Ids{std::min(a, b), std::max(a, b)}, values);
          before_cut += done < 30 ? x : 0;
        }
        acted = acted || done < 60;
      }
    }
    world.deliver_all();
    const auto shard1 = world[1].finished_cut(0);
    const auto shard2 = world[2].finished_cut(0);
    ASSERT_NE(shard1, nullptr);
    ASSERT_NE(shard2, nullptr);
    float row_a = 0;
    float row_b = 0;
    shard1->read(a, &row_a);
    shard2->read(b, &row_b);
    ASSERT_EQ(row_a + row_b, 0.0F) << "seed " << seed;
    ASSERT_EQ(std::abs(row_a), before_cut) << "seed " << seed;
  }
}

TEST(Snapshot, IsNotReadyBeforeEveryRankCut) {
  World world(2, options(0), 3);
  EXPECT_EQ(world[0].start_cut(), 0U);
  world.deliver_all();
  EXPECT_EQ(world[0].finished_cut(0), nullptr);
  EXPECT_EQ(world[0].missing_in_cut(0), "1");
  EXPECT_EQ(world[1].start_cut(), 0U);
  world.deliver_all();
  EXPECT_NE(world[0].finished_cut(0), nullptr);
  EXPECT_NE(world[1].finished_cut(0), nullptr);
}

// The following tests are about messages that peers must not send.

TEST(Service, RejectsWhatMakesNoSense) {
  World world(2, options(0), 3);
  TableMessage reply;
  reply.head.kind = MessageKind::reply;
  reply.head.number = 5;
  EXPECT_THROW(world[0].take(1, reply), Error);
  const std::uint64_t foreign = id_of(world, 1);
  EXPECT_THROW(world[0].take(1, encode_pull({.number = 0, .clock = 0, .ids = {foreign}, .known = {0}})), Error);
  const float value = 1;
  const RowCodec exact("exact", 1);
  EXPECT_THROW(world[0].take(1, encode_rows(MessageKind::push, Ids{foreign}, &value, 1, exact)), Error);
}

}  // namespace
}  // namespace gradwire::table
