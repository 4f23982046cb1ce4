// Tests that ranks give the same calls the same roles, whatever each of them sees: ranks without devices, whose votes
// are exchanged every 64 calls and used 64 calls later.
#include "drop_in/device_roles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace gradwire::drop_in {
namespace {

using Role = DeviceRoles::Role;
using Votes = std::array<std::uint32_t, DeviceRoles::kWords>;

constexpr std::uint64_t kInterval = 64;

char letter_of(Role role) { return role == Role::open ? '.' : role == Role::gradient ? 'g' : 'n'; }

// One call of a step. `address` gives the buffer by rank.
struct Made {
  std::uint64_t count = 1000;
  std::function<std::uintptr_t(std::size_t rank)> address;
  bool mark = false;
  DType dtype = DType::f32;
};

Made bucket(std::uintptr_t address, std::uint64_t count = 1000) {
  return {.count = count, .address = [=](std::size_t rank) { return address + 1'000'000 * rank; }};
}

class VotingRanks {
 public:
  explicit VotingRanks(std::size_t ranks) : ranks_(ranks) {}

  // Makes the calls and returns their roles as letters.
  std::string step(const std::vector<Made>& calls) {
    std::string roles;
    for (const Made& call : calls) {
      others_ += call.mark ? 1 : 0;
      std::optional<Role> all;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const Role role =
            ranks_[rank].next({.function = Function::nccl_all_reduce, .dtype = call.dtype, .count = call.count},
                              reinterpret_cast<const void*>(call.address(rank)), others_);
        EXPECT_EQ(role, all.value_or(role)) << "rank " << rank << " at call " << made_;
        all = role;
      }
      roles += letter_of(all.value_or(Role::open));
      if (++made_ % kInterval == 0) {
        exchange();
      }
    }
    return roles;
  }
  std::string steps(const std::vector<Made>& calls, int times) {
    std::string roles;
    for (int i = 0; i < times; ++i) {
      roles = step(calls);
    }
    return roles;
  }
  [[nodiscard]] std::uint64_t exchanges() const { return exchanges_; }

 private:
  void exchange() {
    if (under_way_) {
      for (DeviceRoles& rank : ranks_) {
        rank.agreed(*under_way_);
      }
      under_way_.reset();
    }
    EXPECT_TRUE(std::all_of(ranks_.begin(), ranks_.end(),
                            [&](const DeviceRoles& rank) { return rank.asks() == ranks_[0].asks(); }));
    if (!ranks_[0].asks()) {
      return;
    }
    ++exchanges_;
    Votes largest{};
    for (DeviceRoles& rank : ranks_) {
      Votes words{};
      rank.vote(words);
      std::transform(words.begin(), words.end(), largest.begin(), largest.begin(),
                     [](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
    }
    under_way_ = largest;
  }

  std::vector<DeviceRoles> ranks_;
  std::optional<Votes> under_way_;
  std::uint64_t made_ = 0;
  std::uint64_t others_ = 0;
  std::uint64_t exchanges_ = 0;
};

const std::vector<Made> kBuckets = {bucket(100), bucket(200), bucket(300), bucket(400, 1001)};

TEST(DeviceRoles, BucketsBecomeGradients) {
  VotingRanks world(3);
  EXPECT_EQ(world.steps(kBuckets, 31), "....") << "124 calls";
  EXPECT_EQ(world.steps(kBuckets, 2), "gggg") << "128 calls and a step";
  EXPECT_EQ(world.steps(kBuckets, 100), "gggg");
  EXPECT_EQ(world.exchanges(), 1U) << "nothing is left to vote on";
}

TEST(DeviceRoles, CallsThatLookAlikeWaitForAThousandOfThem) {
  const std::vector<Made> buckets = {bucket(100), bucket(200)};
  VotingRanks world(2);
  EXPECT_EQ(world.steps(buckets, 512), "..");
  EXPECT_EQ(world.steps(buckets, 1536), "gg");
}

// Mutation tried: ranks never vote again.
TEST(DeviceRoles, APlaceWhoseRhythmBreaksLosesItsRole) {
  std::uintptr_t fresh = 5000;
  bool moves = false;
  std::vector<Made> step = kBuckets;
  step[1].address = [&](std::size_t rank) { return moves && rank == 1 ? ++fresh : 200 + 1'000'000 * rank; };
  VotingRanks world(2);
  EXPECT_EQ(world.steps(step, 100), "gggg");
  moves = true;
  world.step(step);
  moves = false;
  EXPECT_EQ(world.steps(step, 100), "gggg") << "until they vote";
  EXPECT_EQ(world.steps(step, 200), "gngg");
  EXPECT_EQ(world.exchanges(), 2U);
  EXPECT_EQ(world.steps(step, 2000), "gngg") << "until the step changes";
}

TEST(DeviceRoles, WhatKeepsItsRhythmKeepsItsRole) {
  VotingRanks world(2);
  for (int steps = 0; steps < 1000; steps += 10) {
    EXPECT_EQ(world.steps(kBuckets, 10), steps < 30 ? "...." : "gggg") << steps;
  }
  EXPECT_EQ(world.exchanges(), 4U) << "one in a thousand calls";
  std::uintptr_t fresh = 5000;
  std::vector<Made> moving = kBuckets;
  for (Made& call : moving) {
    call.address = [&](std::size_t /*rank*/) { return ++fresh; };
  }
  EXPECT_EQ(world.steps(moving, 400), "nnnn");
  const std::uint64_t before = world.exchanges();
  EXPECT_EQ(world.steps(moving, 1000), "nnnn");
  EXPECT_EQ(world.exchanges(), before) << "nothing can lose a role any more";
}

TEST(DeviceRoles, LongStepsAreVotedOnAgainInTurn) {
  std::vector<Made> step;
  bool moves = false;
  std::uintptr_t fresh = 100'000;
  for (std::uintptr_t i = 0; i < 200; ++i) {
    step.push_back(bucket(1000 + i, 1000 + i));
  }
  step[150].address = [&](std::size_t /*rank*/) { return moves ? ++fresh : 1150; };
  std::string expected(200, 'g');
  VotingRanks world(2);
  EXPECT_EQ(world.steps(step, 12), expected);
  moves = true;
  world.step(step);
  moves = false;
  expected[150] = 'n';
  EXPECT_EQ(world.steps(step, 9), expected);
  EXPECT_EQ(world.exchanges(), 12U) << "62 places in each, three times";
}

TEST(DeviceRoles, OneRankThatDisagreesMakesItNoGradient) {
  std::uintptr_t fresh = 5000;
  std::vector<Made> step = kBuckets;
  step[2].address = [&](std::size_t rank) { return rank == 1 ? ++fresh : 300; };
  VotingRanks world(3);
  EXPECT_EQ(world.steps(step, 40), "ggng");
}

TEST(DeviceRoles, RanksThatSeeOtherStepsWait) {
  std::vector<Made> step = kBuckets;
  for (Made& call : step) {
    call.address = [=](std::size_t rank) { return rank == 1 ? 7 : call.address(rank); };
  }
  VotingRanks world(2);
  EXPECT_EQ(world.steps(step, 400), "....");
  EXPECT_GT(world.exchanges(), 1U) << "they ask again";
  EXPECT_LT(world.exchanges(), 8U) << "but seldom";
}

TEST(DeviceRoles, ActivationsPassBesideBuckets) {
  std::uintptr_t fresh = 5000;
  const Made activation{.count = 500, .address = [](std::size_t) { return 50; }};
  const Made moving{.count = 600, .address = [&](std::size_t) { return ++fresh; }};
  VotingRanks world(2);
  EXPECT_EQ(world.steps({activation, moving, activation, bucket(100), bucket(200)}, 60), "nnngg");
}

TEST(DeviceRoles, ManyPlacesAreVotedOnInTurn) {
  std::vector<Made> step;
  std::string expected;
  for (std::uintptr_t i = 0; i < 200; ++i) {
    step.push_back(bucket(i % 50 == 7 ? 7 : 1000 + i, 1000 + i));
    expected += i % 50 == 7 ? 'n' : 'g';
  }
  VotingRanks world(2);
  EXPECT_EQ(world.steps(step, 10), expected);
  EXPECT_EQ(world.exchanges(), 4U) << "62 places in each";
}

TEST(DeviceRoles, AChangedStepIsLearntAgain) {
  VotingRanks world(2);
  EXPECT_EQ(world.steps(kBuckets, 40), "gggg");
  EXPECT_EQ(world.step({bucket(100), bucket(200), bucket(900, 7)}), "gg.");
  EXPECT_EQ(world.steps(kBuckets, 4), "....");
  EXPECT_EQ(world.steps(kBuckets, 80), "gggg");

  VotingRanks early(2);
  early.steps(kBuckets, 16);  // they vote
  EXPECT_EQ(early.exchanges(), 1U);
  EXPECT_EQ(early.step({bucket(900, 7)}), ".");
  EXPECT_EQ(early.steps(kBuckets, 15), "....");
  EXPECT_EQ(early.steps(kBuckets, 1), "....") << "the period did not last until the result came";
}

// Random jobs: whatever each rank sees, all ranks give the same role (VotingRanks expects it), and what becomes a
// gradient's had one address on every rank.
TEST(DeviceRoles, RandomJobs) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    VotingRanks world(1 + random() % 4);
    std::uintptr_t fresh = 100000;
    std::vector<Made> step;
    const std::size_t calls = 1 + random() % 12;
    for (std::uintptr_t i = 0; i < calls; ++i) {
      Made call = bucket(1000 + i, 1000 + random() % 3);
      const std::size_t odd = random() % 8;
      if (odd < 4) {  // this rank sees another address each time
        call.address = [&fresh, odd, i](std::size_t rank) { return rank == odd ? ++fresh : 1000 + i; };
      }
      call.mark = random() % 4 == 0;
      step.push_back(call);
    }
    for (int i = 0; i < 60; ++i) {
      if (random() % 40 == 0) {
        world.step({bucket(1, 9)});
      }
      world.step(step);
    }
  }
}

}  // namespace
}  // namespace gradwire::drop_in
