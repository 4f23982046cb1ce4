// Tests the state of DDP's communication hook without Torch: saved, and loaded on as many ranks and on fewer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/error_of.hpp"
#include "tests/torch_c10d/hook_job.hpp"

namespace gradwire::torch_c10d {
namespace {

using test::error_of;
using testing::HasSubstr;

TEST_F(HookTest, GoesOnFromASavedState) {
  const std::vector<Values> whole = last_of(feedback("int4"), 8, kRebuilt);
  std::vector<std::string> states(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    EXPECT_EQ(engine.save(), "");
    for (std::uint64_t number = 0; number < 5; ++number) {
      step(engine, kFirst, rank, number);
    }
    states[static_cast<std::size_t>(rank)] = engine.save();
  });
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    engine.load({states[static_cast<std::size_t>(rank)]});
    EXPECT_EQ(engine.step(), 5U);
    EXPECT_EQ(engine.save(), states[static_cast<std::size_t>(rank)]);
    for (std::uint64_t number = 5; number < 8; ++number) {
      const std::vector<Values> results = step(engine, number == 5 ? kFirst : kRebuilt, rank, number);
      EXPECT_TRUE(number < 7 || results == whole);
    }
    engine.load(states);  // in the middle of the training, with the states of all ranks
    for (std::uint64_t number = 5; number < 8; ++number) {
      const std::vector<Values> results = step(engine, kRebuilt, rank, number);
      EXPECT_TRUE(number < 7 || results == whole) << "after the second load()";
    }
    EXPECT_EQ(engine.step(), 8U);
  });
}

double norm(const Values& values) {
  double sum = 0;
  for (const float value : values) {
    sum += double{value} * value;
  }
  return std::sqrt(sum);
}

TEST_F(HookTest, HandsResidualsToAnotherNumberOfRanks) {
  constexpr std::uint64_t kSteps = 6;
  std::vector<Values> missing;  // what the results of these steps lack of the true means, by parameter
  for (const std::uint64_t count : kCounts) {
    missing.emplace_back(count, 0.0F);
  }
  const auto subtract = [&](const std::vector<Values>& results) {
    for (std::size_t p = 0; p < results.size(); ++p) {
      std::ranges::transform(missing[p], results[p], missing[p].begin(), std::minus<>());
    }
  };
  std::vector<std::string> states(4);
  run(4, feedback("int4"), [&](int rank, HookEngine& engine) {
    for (std::uint64_t number = 0; number < kSteps; ++number) {
      const std::vector<Values> results = step(engine, kFirst, rank, number);
      if (rank == 0) {
        subtract(results);
      }
    }
    states[static_cast<std::size_t>(rank)] = engine.save();
  });
  for (std::size_t p = 0; p < kCounts.size(); ++p) {
    for (std::uint64_t number = 0; number < kSteps; ++number) {
      for (int rank = 0; rank < 4; ++rank) {
        std::ranges::transform(missing[p], gradient(p, rank, number), missing[p].begin(),
                               [](float sum, float value) { return sum + value / 4; });
      }
    }
  }
  const std::vector<Values> before = missing;
  // With gradients of zero the residuals alone travel, until all of them have arrived.
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    engine.load({states[2], states[0], states[3], states[1]});
    EXPECT_EQ(engine.step(), kSteps);
    for (int number = 0; number < 8; ++number) {
      const auto results =
          pass(engine, number == 0 ? kFirst : kRebuilt, [](std::size_t p) { return Values(kCounts[p], 0.0F); });
      if (rank == 0) {
        subtract(results);
      }
    }
    EXPECT_EQ(engine.step(), kSteps + 8);
  });
  for (std::size_t p = 0; p < kCounts.size(); ++p) {
    EXPECT_GT(norm(before[p]), 0.01 * std::sqrt(static_cast<double>(kCounts[p])));
    EXPECT_LT(norm(missing[p]), 1e-3 * norm(before[p])) << "parameter " << p;
  }
}

TEST_F(HookTest, RefusesStatesThatDoNotFit) {
  std::vector<std::string> states(3);
  std::vector<std::string> later(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    states[static_cast<std::size_t>(rank)] = engine.save();
    step(engine, kFirst, rank, 1);
    later[static_cast<std::size_t>(rank)] = engine.save();
  });
  const auto engine = make_host_hook_engine({.rank = 1,
                                             .world_size = 2,
                                             .policy = feedback("int4"),
                                             .parameters = parameters(),
                                             .store = store_.rendezvous()});
  const auto refusal = [&](const std::vector<std::string>& given) {
    return std::string(error_of([&] { engine->load(given); }).what());
  };
  EXPECT_THAT(refusal({states[1]}), HasSubstr("that of rank 0 is not among them"));
  EXPECT_THAT(refusal({states[0], states[2]}), HasSubstr("that of rank 1 is not among them"));
  EXPECT_THAT(refusal({states[0], states[1], later[2]}), HasSubstr("several jobs or steps"));
  EXPECT_THAT(refusal({states[0], states[1], states[2], states[2]}), HasSubstr("there are 4 states of 3 ranks"));
  EXPECT_THAT(refusal({states[0].substr(0, 100)}), HasSubstr("state 0"));
  engine->load(states);
  EXPECT_EQ(engine->step(), 1U);
  EXPECT_THAT(error_of([&] { static_cast<void>(engine->save()); }).what(), HasSubstr("another number of ranks"));
}

}  // namespace
}  // namespace gradwire::torch_c10d
