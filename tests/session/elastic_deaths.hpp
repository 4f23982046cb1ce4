// Compares deaths at all times of a small job with runs without them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "elastic_job.hpp"

namespace gradwire::test {

/// Lets rank 2 die at `moments` different operations. Each run must equal one in which rank 2 left between two steps,
/// as if it was started from the state before.
inline void expect_a_death_costs_one_step(const Plan& alive, std::int64_t moments) {
  const std::vector<Fate> whole = run(alive);
  const std::int64_t operations = whole[2].operations;
  ASSERT_GT(operations, 50);
  std::map<std::uint64_t, std::vector<Fate>> left;  // by the step before which the victim left
  for (std::int64_t at = 1; at < operations; at += std::max<std::int64_t>(1, operations / moments)) {
    SCOPED_TRACE("dies at operation " + std::to_string(at));
    Plan dies = alive;
    dies.dies_after = {{2, at}};
    const std::vector<Fate> fates = run(dies);
    if (!fates[2].parameters.empty()) {
      continue;  // it died after it had done everything
    }
    ASSERT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 3}));
    for (const Id id : {1, 3}) {
      expect_equal(fates[0], fates[id], false);
      ASSERT_EQ(fates[id].first, fates[0].first) << "all survivors change at one step";
      ASSERT_EQ(fates[id].changes.size(), fates[id].world_size < kRanks ? 1U : 0U);
      if (fates[id].changes.empty()) {
        continue;
      }
      EXPECT_EQ(fates[id].changes[0].lost, std::vector<int>{2});
      EXPECT_EQ(fates[id].changes[0].rank, id == 3 ? 2 : 1);
      EXPECT_EQ(fates[id].changes[0].world_size, 3);
    }
    if (fates[0].world_size == kRanks) {  // it died after the last step
      for (const Id id : {0, 1, 3}) {
        expect_equal(fates[id], whole[id], true);
      }
      continue;
    }
    const std::uint64_t first = fates[0].first.empty() ? 0 : fates[0].first[0];
    if (!left.contains(first)) {
      Plan leaves = alive;
      leaves.leaves_before = {{2, first}};
      left[first] = run(leaves);
    }
    for (const Id id : {0, 1, 3}) {
      expect_equal(fates[id], left[first][id], true);
    }
  }
}

}  // namespace gradwire::test
