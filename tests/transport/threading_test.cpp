// Tests which of two thread levels applies if both must hold.
#include "gradwire/threading.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gradwire {
namespace {

// Mutation tried, found by the assertion at compile time: the smaller of the two numbers is returned.
TEST(Threading, TheMoreRestrictedOfTwoHolds) {
  const std::vector<Threading> from_free_to_strict{Threading::background, Threading::serialized,
                                                   Threading::main_thread};
  for (std::size_t a = 0; a < from_free_to_strict.size(); ++a) {
    for (std::size_t b = 0; b < from_free_to_strict.size(); ++b) {
      EXPECT_EQ(more_restricted(from_free_to_strict[a], from_free_to_strict[b]), from_free_to_strict[std::max(a, b)])
          << a << " and " << b;
    }
  }
  static_assert(more_restricted(Threading::serialized, Threading::background) == Threading::serialized);
}

}  // namespace
}  // namespace gradwire
