// Tests tags and slots of the drop-in's one communicator: no two communicators that share two ranks may ever have the
// same MPI tag.
#include "transport/mpi_tags.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::transport {
namespace {

constexpr int kOpenMpi = 2147483647;
constexpr int kMpich = 268435455;
constexpr int kUcx = (1 << 24) - 1;
constexpr int k22Bits = (1 << 22) - 1;
constexpr int kLeast = 32767;

TEST(TagPlan, HasRoomForCommunicatorsAndLanes) {
  for (const int bound : {kOpenMpi, kMpich, kUcx, k22Bits}) {
    const TagPlan plan(bound);
    EXPECT_GE(plan.slots(), 256U) << bound;
    EXPECT_GE(plan.most_lanes(), 256U) << bound;
  }
  EXPECT_GE(TagPlan(kOpenMpi).most_lanes(), 4096U);
  EXPECT_EQ(TagPlan(kLeast).slots(), 3U);
}

// Every tag stays below the bound, and distinguishes slot, kind, hop and lane.
TEST(TagPlan, TellsApartWhatMayBeUnderWayTogether) {
  for (const int bound : {kOpenMpi, kMpich, kUcx, k22Bits, kLeast}) {
    const TagPlan plan(bound);
    std::set<int> seen{TagPlan::notice()};
    for (const unsigned slot : {1U, 2U, plan.slots() / 2 + 1, plan.slots()}) {
      for (Tag lane = 0; lane < 2 * plan.most_lanes(); lane += 7) {
        for (Tag hop = 0; hop < 8; ++hop) {
          const Tag tag = lane << 3 | hop;
          for (const int each : {plan.plain(slot, tag), plan.bulk(slot, tag)}) {
            EXPECT_GT(each, 0);
            EXPECT_LE(each, bound);
            seen.insert(each);
          }
        }
      }
    }
    std::set<unsigned> slots{1U, 2U, plan.slots() / 2 + 1, plan.slots()};
    const std::size_t lanes = (2 * plan.most_lanes() + 6) / 7;
    EXPECT_EQ(seen.size(), 1 + slots.size() * lanes * 8 * 2) << bound;
  }
}

SlotTable::Set all_of(const SlotTable::Set& a, const SlotTable::Set& b) {
  SlotTable::Set both{};
  for (std::size_t i = 0; i < both.size(); ++i) {
    both[i] = a[i] & b[i];
  }
  return both;
}

TEST(SlotTable, OneAfterAnotherTakesNearlyAll) {
  SlotTable table(TagPlan::kMostSlots);
  std::set<unsigned> taken;
  for (int i = 0; i < 2000; ++i) {
    const SlotTable::Offer offer = table.offer();
    if (const auto slot = table.settle(offer, offer.free)) {
      EXPECT_TRUE(taken.insert(*slot).second) << *slot;
    }
  }
  EXPECT_GE(taken.size(), 256U);
  EXPECT_EQ(table.taken(), taken.size());
  const unsigned one = *taken.begin();
  table.release(one);
  const SlotTable::Offer offer = table.offer();
  EXPECT_EQ(table.settle(offer, offer.free), one);
}

TEST(SlotTable, FewSlotsAreStillUsed) {
  SlotTable table(3);
  std::set<unsigned> taken;
  for (int i = 0; i < 5; ++i) {
    const SlotTable::Offer offer = table.offer();
    if (const auto slot = table.settle(offer, offer.free)) {
      taken.insert(*slot);
    }
  }
  EXPECT_EQ(taken, (std::set<unsigned>{1, 2, 3}));
}

// Communicators come and go on ranks whose threads make and free them in different orders. The test counts that no two
// communicators alive on the same two ranks share a slot, and that a quiet machine gives nearly all of them one.
TEST(SlotTable, RandomCommunicatorsNeverShare) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  std::size_t with_slot = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t ranks = 2 + below(5);
    std::vector<std::unique_ptr<SlotTable>> table;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      table.push_back(std::make_unique<SlotTable>(below(2) == 0 ? 383U : 5U));
    }
    struct Comm {
      std::vector<std::size_t> ranks;
      std::map<std::size_t, SlotTable::Offer> offers;          // the offers made so far
      std::map<std::size_t, std::optional<unsigned>> settled;  // by rank
      std::set<std::size_t> freed;
    };
    std::vector<Comm> comms;
    for (int event = 0; event < 400; ++event) {
      if (comms.size() < 60 && below(3) == 0) {
        Comm made;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          if (below(4) != 0) {
            made.ranks.push_back(rank);
          }
        }
        if (made.ranks.size() >= 2) {
          comms.push_back(made);
        }
        continue;
      }
      if (comms.empty()) {
        continue;
      }
      Comm& comm = comms[below(comms.size())];
      const std::size_t rank = comm.ranks[below(comm.ranks.size())];
      if (!comm.offers.contains(rank)) {
        comm.offers[rank] = table[rank]->offer();
      } else if (comm.offers.size() == comm.ranks.size() && !comm.settled.contains(rank)) {
        SlotTable::Set common = comm.offers.begin()->second.free;
        for (const auto& [other, offer] : comm.offers) {
          common = all_of(common, offer.free);
        }
        comm.settled[rank] = table[rank]->settle(comm.offers[rank], common);
        EXPECT_EQ(comm.settled[rank], comm.settled.begin()->second) << "ranks differ";
        with_slot += comm.settled[rank] ? 1 : 0;
      } else if (comm.settled.size() == comm.ranks.size() && !comm.freed.contains(rank)) {
        comm.freed.insert(rank);
        if (comm.settled[rank]) {
          table[rank]->release(*comm.settled[rank]);
        }
      }
      // Counts, for each rank and slot, the communicators that use it there and are not freed there.
      std::map<std::pair<std::size_t, unsigned>, int> users;
      for (const Comm& each : comms) {
        for (const auto& [at, slot] : each.settled) {
          if (slot && !each.freed.contains(at)) {
            ++users[{at, *slot}];
          }
        }
      }
      for (const auto& [key, count] : users) {
        ASSERT_EQ(count, 1) << "rank " << key.first << ", slot " << key.second;
      }
    }
  }
  EXPECT_GT(with_slot, 100U);
}

}  // namespace
}  // namespace gradwire::transport
