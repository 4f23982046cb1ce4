// Tests that rows which are asked for most are found, and that relays answer them as the owner would: within the bound
// on staleness, with the reader's own writes, and none from before a synchronization.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "service_world.hpp"
#include "table/relayed_rows.hpp"
#include "table/row_sketch.hpp"

namespace gradwire::table {
namespace {

// The following tests are about counting and choosing.

TEST(RowSketch, CountsARowAtLeastAsOftenAsItCameAndLittleMore) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  RowSketch sketch(seed);
  RowSketch same(seed);
  std::map<std::uint64_t, std::uint64_t> counts;
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t id = i % 10 == 0 ? 77 : random() % 1'000'000;
    ++counts[id];
    EXPECT_GE(sketch.add(id, 1), counts[id]);
    static_cast<void>(same.add(id, 1));
  }
  const double bound = 200000 * std::exp(1.0) / RowSketch::kCounters;
  std::size_t far = 0;
  for (const auto& [id, count] : counts) {
    ASSERT_GE(sketch.estimate(id), count);
    ASSERT_EQ(sketch.estimate(id), same.estimate(id));
    far += static_cast<double>(sketch.estimate(id) - count) > bound ? 1 : 0;
  }
  EXPECT_LE(far, counts.size() / 20);
  EXPECT_LE(static_cast<double>(sketch.estimate(77)), 20000 + bound);
  sketch.halve();
  EXPECT_GE(sketch.estimate(77), 10000U);
  EXPECT_EQ(sketch.total(), 100000U);
}

TEST(RelayedRows, EachGroupHasOneRelayForARow) {
  for (int ranks = 3; ranks <= 40; ++ranks) {
    const RelayedRows rows(0, ranks, 8, 1);
    const int groups = static_cast<int>(std::ceil((ranks - 1) / (1 + std::ceil(std::sqrt(ranks - 1)))));
    for (int owner = 0; owner < ranks; ++owner) {
      std::set<int> all;
      for (std::uint64_t id = 0; id < 20; ++id) {
        std::map<int, int> readers;  // by relay
        for (int reader = 0; reader < ranks; ++reader) {
          if (reader != owner) {
            const int relay = rows.relay_of(owner, id, reader);
            ++readers[relay];
            all.insert(relay);
            ASSERT_NE(relay, owner);
            ASSERT_EQ(rows.relay_of(owner, id, relay), relay);
          }
        }
        ASSERT_EQ(static_cast<int>(readers.size()), groups) << ranks << " ranks";
      }
      EXPECT_GT(static_cast<int>(all.size()), groups) << "the same ranks relay all rows";
    }
  }
}

/// Lets four ranks count for 32 clocks what rank 0 is asked for; each other rank says that it answers `others` rows a
/// clock. Returns what rank 0 announced last.
Ids announced_by(RelayedRows& rows, const Ids& asked, std::uint64_t others) {
  Ids announced;
  for (int clock = 0; clock < 32; ++clock) {
    for (int peer = 1; peer < 4; ++peer) {
      rows.count_asked(peer, asked);
      rows.take(peer, {.answered = others}, 0);
    }
    if (const RelayedRows::Note note = rows.end_clock(); note.announced) {
      announced = *note.announced;
    }
  }
  return announced;
}

TEST(RelayedRows, AreThoseThatAreMoreThanARanksShare) {
  RelayedRows balanced(0, 4, 8, 1);
  EXPECT_EQ(announced_by(balanced, {1, 2, 3}, 9), Ids{});
  RelayedRows busy(0, 4, 8, 1);
  EXPECT_EQ(announced_by(busy, {5, 9}, 0), (Ids{5, 9}));
  RelayedRows bounded(0, 4, 1, 1);
  EXPECT_EQ(announced_by(bounded, {5, 9}, 0).size(), 1U);
  RelayedRows off(0, 4, 0, 1);
  EXPECT_EQ(announced_by(off, {5, 9}, 0), Ids{});
  // A fifth more than the share is covered by some of the rows.
  Ids many(40);
  std::iota(many.begin(), many.end(), 0U);
  RelayedRows above(0, 4, 100, 1);
  const Ids some = announced_by(above, many, 93);
  EXPECT_GT(some.size(), 5U);
  EXPECT_LT(some.size(), 25U);
}

// The following tests are about answers.

constexpr int kTrainers = 8;
constexpr std::uint64_t kTrainedRows = 200;

struct Load {
  std::uint64_t busiest = 0;  // the most rows that a rank answered in the second half, as an owner or a relay
  std::uint64_t owner = 0;    // the same of owners alone
  std::uint64_t relayed = 0;
};

/// Draws ids of which few are common: id i with a probability of about 1 / (i + 1)^1.3.
Ids draw(std::mt19937& random) {
  static const std::vector<double> weights = [] {
    std::vector<double> all(kTrainedRows);
    for (std::uint64_t i = 0; i < kTrainedRows; ++i) {
      all[i] = 1 / std::pow(static_cast<double>(i + 1), 1.3);
    }
    return all;
  }();
  std::discrete_distribution<std::uint64_t> zipf(weights.begin(), weights.end());
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 4; ++i) {
    ids.insert(zipf(random));
  }
  return {ids.begin(), ids.end()};
}

/// Ranks pull rows of a Zipf distribution and push -1 to them, in random order. Every value that a pull returns has at
/// least the pushes that its bound promises, and at most those that were made.
class Training {
 public:
  Training(const TableOptions& o, unsigned seed) : world_(kTrainers, o, seed), draws_(seed), pulls_(kTrainers) {}

  Load run(std::uint64_t clocks) {
    std::vector<TableStatistics> half(kTrainers);
    bool at_half = false;
    for (std::uint64_t turn = 0; !ended(clocks); ++turn) {
      if (turn > 3'000'000) {
        throw std::runtime_error("the ranks hang");
      }
      if (world_.random() % 3 != 0) {
        static_cast<void>(world_.deliver());
      } else {
        act(static_cast<int>(world_.random() % kTrainers), clocks);
      }
      if (!at_half && world_[0].clock() == clocks / 2) {
        at_half = true;
        for (int rank = 0; rank < kTrainers; ++rank) {
          half[static_cast<std::size_t>(rank)] = world_[rank].statistics();
        }
      }
    }
    Load load;
    for (int rank = 0; rank < kTrainers; ++rank) {
      const TableStatistics& before = half[static_cast<std::size_t>(rank)];
      const TableStatistics now = world_[rank].statistics();
      load.owner = std::max(load.owner, now.rows_answered - before.rows_answered);
      load.busiest =
          std::max(load.busiest, now.rows_answered + now.rows_relayed - before.rows_answered - before.rows_relayed);
      load.relayed += now.rows_relayed;
    }
    return load;
  }

  /// Every rank ticks so often that its next pull misses nothing, and pulls all rows.
  void expect_all_pushes() {
    for (std::uint64_t i = 0; i <= world_.options.staleness; ++i) {
      for (int rank = 0; rank < kTrainers; ++rank) {
        world_[rank].tick();
      }
    }
    world_.deliver_all();
    Ids all(kTrainedRows);
    std::iota(all.begin(), all.end(), 0U);
    for (int rank = 0; rank < kTrainers; ++rank) {
      const std::vector<float> rows = world_.pull(rank, all);
      for (std::uint64_t id = 0; id < kTrainedRows; ++id) {
        ASSERT_EQ(rows[id], static_cast<float>(pushes_[id].size())) << "row " << id << " on rank " << rank;
      }
    }
  }

 private:
  struct Push {
    int rank;
    std::uint64_t clock;
  };

  [[nodiscard]] bool ended(std::uint64_t clocks) {
    for (int rank = 0; rank < kTrainers; ++rank) {
      if (world_[rank].clock() < clocks) {
        return false;
      }
    }
    return true;
  }
  void act(int rank, std::uint64_t clocks) {
    std::shared_ptr<Pull>& pull = pulls_[static_cast<std::size_t>(rank)];
    if (pull != nullptr) {
      if (!pull->done()) {
        return;
      }
      check(rank, *pull);
      for (const std::uint64_t id : pull->ids) {
        pushes_[id].push_back({rank, world_[rank].clock()});
        world_.push(rank, id, -1);
      }
      world_[rank].tick();
      pull = nullptr;
    } else if (world_[rank].clock() < clocks) {
      pull = world_[rank].start_pull(draw(draws_), false);
    }
  }
  void check(int rank, const Pull& pull) {
    for (std::size_t i = 0; i < pull.ids.size(); ++i) {
      const std::vector<Push>& pushes = pushes_[pull.ids[i]];
      const auto promised = std::count_if(pushes.begin(), pushes.end(), [&](const Push& push) {
        return push.clock < pull.needed || (push.rank == rank && world_.options.read_own_writes);
      });
      ASSERT_GE(pull.rows[i], static_cast<float>(promised)) << "row " << pull.ids[i] << " on rank " << rank;
      ASSERT_LE(pull.rows[i], static_cast<float>(pushes.size()));
    }
  }

  World world_;
  std::mt19937 draws_;
  std::vector<std::shared_ptr<Pull>> pulls_;
  std::map<std::uint64_t, std::vector<Push>> pushes_;
};

TableOptions relayed(std::uint64_t staleness, bool read_own_writes, std::uint32_t rows) {
  TableOptions o = options(staleness);
  o.rows = kTrainedRows;
  o.read_own_writes = read_own_writes;
  o.cache_bytes = 1 << 20;
  o.relayed_rows = rows;
  return o;
}

// Mutations tried: the sketch counts nothing; a relay takes entries of its cache without a look at their clock; a
// reader asks relays for rows that it wrote to.
TEST(Relays, TakeLoadOffTheBusiestRankWithinTheBound) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  for (const std::uint64_t staleness : {0, 2}) {
    for (const bool read_own_writes : {true, false}) {
      SCOPED_TRACE("staleness " + std::to_string(staleness) + (read_own_writes ? ", own writes" : ""));
      constexpr std::uint64_t kClocks = 300;
      Training alone(relayed(staleness, read_own_writes, 0), seed);
      const Load before = alone.run(kClocks);
      Training together(relayed(staleness, read_own_writes, 64), seed);
      const Load after = together.run(kClocks);
      together.expect_all_pushes();
      EXPECT_EQ(before.relayed, 0U);
      std::printf("busiest rank: %lu rows alone, %lu with relays; as an owner: %lu and %lu\n", before.busiest,
                  after.busiest, before.owner, after.owner);
      if (staleness == 0 || !read_own_writes) {  // otherwise ranks must ask the owner, to see what they wrote
        EXPECT_GT(after.relayed, 0U);
        EXPECT_LT(static_cast<double>(after.busiest), 1.1 * static_cast<double>(before.busiest));
        EXPECT_LT(static_cast<double>(after.owner), 0.8 * static_cast<double>(before.owner));
      }
    }
  }
}

TEST(Relays, ACacheThatHoldsTwoRowsChangesNothingButTraffic) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  TableOptions o = relayed(0, true, 64);
  o.cache_bytes = 2 * RowCache::bytes_per_row(1);
  Training training(o, seed);
  EXPECT_GT(training.run(200).relayed, 0U);
  training.expect_all_pushes();
}

/// Makes row `id` known as one that relays answer, by asking for nothing else.
void make_relayed(World& world, std::uint64_t id, int owner) {
  for (int clock = 0; clock < 64; ++clock) {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      if (rank != owner) {
        static_cast<void>(world.pull(rank, {id}));
      }
    }
    for (int rank = 0; rank < world.ranks(); ++rank) {
      world[rank].tick();
    }
    world.deliver_all();
  }
}

// Mutation tried: a relay does not look at the generation of the request.
TEST(Relays, GiveNoRowFromBeforeASynchronization) {
  World world(4, relayed(0, false, 64), 3);
  const std::uint64_t id = id_of(world, 0);
  make_relayed(world, id, 0);
  int reader = 1;
  while (RelayedRows(0, 4, 64, 0).relay_of(0, id, reader) == reader) {
    ++reader;
  }
  const int relay = RelayedRows(0, 4, 64, 0).relay_of(0, id, reader);
  static_cast<void>(world.pull(relay, {id}));
  world.options.staleness = 5;  // what the relay has now would do for some clocks
  world.push(0, id, -7);        // the owner's own, within the clock
  const std::uint64_t answered = world[0].statistics().rows_answered;
  world[reader].distrust_cache();
  EXPECT_EQ(world.pull(reader, {id})[0], 7.0F);
  EXPECT_GT(world[relay].statistics().rows_relayed, 0U);
  EXPECT_EQ(world[0].statistics().rows_answered, answered + 1) << "the relay did not ask";
}

// The owner answers a later request first, as it does if rows of the earlier one lie in a file.
TEST(Relays, AnAnswerThatWasOvertakenDoesNotReplaceNewerRows) {
  TableOptions o = options(0);
  o.cache_bytes = 1 << 16;
  Service owner(0, 2, o);
  Service reader(1, 2, o);
  std::uint64_t id = 0;
  while (owner.owner(id) != 0) {
    ++id;
  }
  const auto pass = [](Service& from, Service& to, int rank) {
    for (const Service::Envelope& envelope : from.take_outbox()) {
      to.take(rank, envelope.message);
    }
  };
  const auto first = reader.start_pull({id}, false);
  pass(reader, owner, 1);
  const std::vector<Service::Envelope> early = owner.take_outbox();
  const float gradient = -5;
  owner.write(MessageKind::push, std::span(&id, 1), &gradient);
  owner.tick();
  reader.tick();
  pass(reader, owner, 1);
  const auto second = reader.start_pull({id}, false);
  pass(reader, owner, 1);
  pass(owner, reader, 0);
  ASSERT_TRUE(second->done());
  EXPECT_EQ(second->rows[0], 5.0F);
  reader.take(0, early[0].message);
  ASSERT_TRUE(first->done());
  const auto third = reader.start_pull({id}, false);
  ASSERT_TRUE(third->done()) << "the row is not in the cache";
  EXPECT_EQ(third->rows[0], 5.0F);
}

TEST(Relays, RefuseRequestsThatNoRankMakes) {
  World world(3, options(0), 3);
  const std::uint64_t id = id_of(world, 0);
  const PullRequest own{.number = 0, .clock = 0, .ids = {id}, .known = {0}, .generation = 0};
  EXPECT_THROW(world[0].take(1, encode_pull(own)), Error);
  EXPECT_NO_THROW(world[2].take(1, encode_pull(own)));
}

}  // namespace
}  // namespace gradwire::table
