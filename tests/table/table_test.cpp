// Tests tables over a transport as a training loop sees them, with ranks and callers as threads.
#include "gradwire/table.hpp"
#include "gradwire/emulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "table_support.hpp"

namespace gradwire::test {
namespace {

TEST(Table, RowsAreWhatOneProcessWouldHave) {
  for (const Threading threading : {Threading::background, Threading::main_thread}) {
    for (const int world : {1, 2, 3, 4}) {
      TableOptions options = table_options(300, 4);
      options.initial_scale = 0.25F;
      options.cache_bytes = 1 << 14;  // less than the table
      options.threading = threading;
      std::mutex mutex;
      std::vector<std::vector<float>> results;
      run_tables(world, options, [&](Table& table) {
        std::mt19937 random(static_cast<unsigned>(table.rank()));
        for (int step = 0; step < 20; ++step) {
          Ids ids(random() % 60);
          for (std::uint64_t& id : ids) {
            id = random() % 300;
          }
          const std::vector<float> rows = pull(table, ids);
          std::vector<float> gradients(rows.size(), 0.125F);  // sums are exact, so their order does not matter
          table.push(ids, gradients);
          table.tick();
        }
        table.synchronize();
        const std::vector<float> rows = pull(table, all_ids(table));
        const std::lock_guard lock(mutex);
        results.push_back(rows);
      });
      std::map<std::uint64_t, int> pushed;
      for (unsigned rank = 0; rank < static_cast<unsigned>(world); ++rank) {
        std::mt19937 random(rank);
        for (int step = 0; step < 20; ++step) {
          for (auto count = random() % 60; count > 0; --count) {
            ++pushed[random() % 300];
          }
        }
      }
      run_tables(1, options, [&](Table& table) {
        const std::vector<float> begin = pull(table, all_ids(table));
        for (const std::vector<float>& rows : results) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            ASSERT_NEAR(rows[i], begin[i] - 0.125F * static_cast<float>(pushed[i / 4]), 1e-5) << world << " ranks";
            ASSERT_EQ(rows[i], results[0][i]) << "ranks see different rows";
          }
        }
      });
    }
  }
}

TEST(Table, AnyIdsWillDo) {
  run_tables(3, table_options(100, 2), [](Table& table) {
    EXPECT_EQ(pull(table, {}), std::vector<float>());
    table.push({}, {});
    if (table.rank() == 1) {
      table.push(Ids{99, 3, 99, 50, 3, 99}, std::vector<float>{-1, -10, -2, -20, -3, -30, -4, -40, -5, -50, -6, -60});
    }
    table.synchronize();
    EXPECT_EQ(pull(table, {50, 99, 3, 99, 0}), (std::vector<float>{4, 40, 10, 100, 7, 70, 10, 100, 0, 0}));
    table.synchronize();
    EXPECT_EQ(table.statistics().rows_pulled, 4U) << "duplicates are merged";
  });
}

TEST(Table, SynchronousReadsSeeEveryStepOfEveryRank) {
  run_tables(4, table_options(64, 1), [](Table& table) {
    for (int step = 1; step <= 30; ++step) {
      const Ids ids = all_ids(table);
      table.push(ids, std::vector<float>(ids.size(), -1.0F));
      table.tick();
      for (const float row : pull(table, ids)) {
        ASSERT_GE(row, static_cast<float>(4 * step));
        ASSERT_LE(row, static_cast<float>(4 * step + 3));  // other ranks may be one step ahead
      }
    }
    EXPECT_EQ(table.statistics().maximum_age, 0U);
    EXPECT_EQ(table.clock(), 30U);
  });
}

TEST(Table, CodecsRoundWhatTravels) {
  for (const auto& [codec, bound] :
       {std::pair{"exact", 0.0F}, std::pair{"bf16", 1.0F / 256}, std::pair{"int8", 1.0F / 127}}) {
    TableOptions options = table_options(40, 8);
    options.codec = codec;
    options.gradient_codec = codec;
    run_tables(2, options, [&, &bound = bound](Table& table) {
      std::vector<float> values(320);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i));
      }
      if (table.rank() == 0) {
        table.push(all_ids(table), values);
      }
      table.synchronize();
      const std::vector<float> rows = pull(table, all_ids(table));
      bool differs = false;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        ASSERT_NEAR(rows[i], -values[i], 2 * bound);
        differs = differs || rows[i] != -values[i];
      }
      EXPECT_EQ(differs, bound != 0);
    });
  }
}

TEST(Table, AssignReplacesAndPrefetchFillsTheCache) {
  TableOptions options = table_options(50, 2);
  options.cache_bytes = 1 << 16;
  options.staleness = 4;
  run_tables(2, options, [](Table& table) {
    if (table.rank() == 0) {
      table.assign(Ids{5, 6, 5}, std::vector<float>{1, 1, 2, 2, 3, 3});
    }
    table.synchronize();
    table.prefetch(all_ids(table));
    EXPECT_EQ(pull(table, {6, 5}), (std::vector<float>{2, 2, 3, 3}));
    const TableStatistics before = table.statistics();
    EXPECT_GT(before.rows_received, 0U);
    static_cast<void>(pull(table, all_ids(table)));
    EXPECT_EQ(table.statistics().rows_received, before.rows_received);
    EXPECT_EQ(table.statistics().rows_unchanged, before.rows_unchanged);
    EXPECT_GT(table.statistics().cache_bytes, 0U);
  });
}

TEST(Table, AloneItNeedsNoTransport) {
  run_tables(1, table_options(), [](Table& table) {
    table.push(Ids{1, 1, 2}, std::vector<float>(12, -1.0F));
    table.tick();
    EXPECT_EQ(pull(table, {2, 1}), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
    EXPECT_EQ(table.statistics().traffic.messages_sent, 0U);
    EXPECT_EQ(table.snapshot().rows(), 2U);
  });
}

TEST(Table, OwnRowsDoNotTouchTheTransport) {
  run_tables(2, table_options(), [](Table& table) {
    Ids own;
    for (std::uint64_t id = 0; own.size() < 20; ++id) {
      if (table.owner(id) == table.rank()) {
        own.push_back(id);
      }
    }
    table.synchronize();
    const std::uint64_t before = table.statistics().traffic.messages_sent;
    for (int i = 0; i < 5; ++i) {
      static_cast<void>(pull(table, own));
      table.push(own, std::vector<float>(80, 1.0F));
    }
    EXPECT_EQ(table.statistics().traffic.messages_sent, before);
  });
}

TEST(Table, SnapshotsAreConsistentWhileThreadsPush) {
  TableOptions options = table_options(200, 1);
  options.staleness = TableOptions::kUnbounded;
  constexpr int kRanks = 3;
  constexpr int kSnapshots = 5;
  std::vector<double> sums(kSnapshots);
  std::vector<std::uint64_t> rows(kSnapshots);
  std::mutex mutex;
  run_tables(kRanks, options, [&](Table& table) {
    std::atomic<bool> stop = false;
    std::atomic<int> pushes = 0;
    std::atomic<int> allowed = 0;
    std::thread pusher([&] {
      std::mt19937 random(static_cast<unsigned>(table.rank()));
      while (!stop) {  // the planted invariant: a push takes from one row what it adds to another
        if (pushes >= allowed) {
          std::this_thread::yield();
          continue;
        }
        const std::uint64_t a = random() % 100;
        const std::uint64_t b = 100 + random() % 100;
        const auto x = static_cast<float>(random() % 64);
        table.push(Ids{b, a}, std::vector<float>{x, -x});
        ++pushes;
      }
    });
    for (int i = 0; i < kSnapshots; ++i) {
      allowed += 200;  // half of them while the snapshot is being made
      while (pushes < allowed - 100) {
        std::this_thread::yield();
      }
      const TableSnapshot snapshot = table.snapshot();
      double sum = 0;
      snapshot.for_each([&](std::uint64_t id, std::span<const float> values) {
        EXPECT_EQ(snapshot.find(id).data(), values.data());
        sum += static_cast<double>(values[0]);
      });
      const std::lock_guard lock(mutex);
      sums[static_cast<std::size_t>(i)] += sum;
      rows[static_cast<std::size_t>(i)] += snapshot.rows();
    }
    stop = true;
    pusher.join();
  });
  for (int i = 0; i < kSnapshots; ++i) {
    EXPECT_EQ(sums[static_cast<std::size_t>(i)], 0.0) << "snapshot " << i;
    EXPECT_GT(rows[static_cast<std::size_t>(i)], 50U);
  }
}

TEST(Table, CollectivesEndWhileAnotherThreadPushes) {
  auto world = make_inproc_world(2);
  for (auto& transport : world) {
    transport = make_throttled(transport, LinkSchedule::parse("1Gbit/s,100us"));
  }
  TableOptions options = table_options(2000, 64);
  options.timeout = std::chrono::seconds(40);  // timeout of a collective that starves: a busy machine has needed 15 s
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Table table(transport, options);
    std::atomic<int> pushes = 0;
    std::string error;
    {
      const std::jthread pusher([&](const std::stop_token& stop) {
        try {
          const Ids ids = all_ids(table);
          const std::vector<float> gradients(ids.size() * 64, 0.01F);
          for (; !stop.stop_requested(); ++pushes) {
            table.push(ids, gradients);
          }
        } catch (const std::exception& caught) {
          error = caught.what();
          pushes = 1000;
        }
      });
      while (pushes < 70) {  // enough for as many unsent bytes as a table allows
        std::this_thread::yield();
      }
      table.synchronize();
    }
    EXPECT_EQ(error, "");
  });
}

double seconds_of_push(const std::string& link) {
  auto world = make_inproc_world(2);
  for (auto& transport : world) {
    transport = make_throttled(transport, LinkSchedule::parse(link));
  }
  TableOptions options = table_options(8000, 64);
  options.gradient_codec = "exact";
  std::vector<double> seconds(2);
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Table table(transport, options);
    const Ids ids = all_ids(table);
    const std::vector<float> gradients(ids.size() * 64, 0.01F);
    table.synchronize();
    const auto start = std::chrono::steady_clock::now();
    table.push(ids, gradients);
    table.synchronize();
    seconds[static_cast<std::size_t>(transport->rank())] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

// Writes do not wait until earlier ones have arrived: 1 MB each way takes some latencies. The push over a short link
// includes the delays of the machine too.
TEST(Table, PushesFillAFarLink) {
  const double near = seconds_of_push("4Gbit/s");
  const double far = seconds_of_push("4Gbit/s,100ms");
  EXPECT_LT(far - near, 2.0) << "3.2 with 64 KiB in each round trip";
}

TEST(Table, ManyThreadsOfManyRanks) {
  TableOptions options = table_options(500, 4);
  options.cache_bytes = 1 << 13;
  options.staleness = 2;
  std::atomic<int> total_ids = 0;
  run_tables(3, options, [&](Table& table) {
    const auto work = [&](unsigned seed) {
      std::mt19937 random(seed);
      for (int i = 0; i < 60; ++i) {
        Ids ids(1 + random() % 20);
        for (std::uint64_t& id : ids) {
          id = random() % 500;
        }
        if (i % 3 == 0) {
          table.prefetch(ids);
        }
        static_cast<void>(pull(table, ids));
        table.push(ids, std::vector<float>(ids.size() * 4, -1.0F));
        total_ids += static_cast<int>(ids.size());
      }
    };
    std::thread other([&] { work(static_cast<unsigned>(table.rank()) + 100); });
    work(static_cast<unsigned>(table.rank()));
    other.join();
    table.tick();
    table.synchronize();
    double sum = 0;
    for (const float value : pull(table, all_ids(table))) {
      sum += static_cast<double>(value);
    }
    EXPECT_EQ(sum, 4.0 * total_ids);
  });
}

}  // namespace
}  // namespace gradwire::test
