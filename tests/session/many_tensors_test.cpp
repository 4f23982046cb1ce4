// Tests that a session's time is linear in the number of tensors: with a loop over all tensors for each tensor, these
// tests would take minutes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

TEST(ManyTensors, AreAddedPlannedAgreedOnAndReduced) {
  constexpr std::size_t kTensors = 100'000 / kStepShare;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradients(kTensors, 1.0F + static_cast<float>(transport->rank()));
    Session session(transport, Policy::uniform("exact"));
    std::vector<TensorId> ids;
    for (std::size_t i = 0; i < kTensors; ++i) {
      ids.push_back(session.add("block." + std::to_string(i) + ".weight", view(&gradients[i], 1)));
    }
    EXPECT_EQ(error_of([&] { session.add("block.77.weight", view(gradients.data(), 1)); }).code(),
              ErrorCode::invalid_argument);
    EXPECT_NE(session.explain().find("block." + std::to_string(kTensors - 1) + ".weight"), std::string::npos);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = ids.size(); i-- > 0;) {
        session.ready(ids[i]);
      }
      session.finish();
    }
    EXPECT_EQ(gradients[kTensors / 2], 1.5F);
  });
}

// With a loop over all names or all memory in add(), this would take half an hour.
TEST(ManyTensors, HaveNamesAndMemoryThatAreComparedAtOnce) {
  constexpr std::size_t kTensors = 1'000'000 / kStepShare;
  std::vector<float> gradients(kTensors);
  Session session(make_inproc_world(1)[0], Policy::uniform("exact"));
  for (std::size_t i = 0; i < kTensors; ++i) {
    session.add(std::to_string(i), view(&gradients[i], 1));
  }
  float other = 1;
  EXPECT_EQ(error_of([&] { session.add(std::to_string(kTensors - 1), view(&other, 1)); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_NE(std::string(error_of([&] { session.add("again", view(&gradients[77], 1)); }).what()).find("\"77\""),
            std::string::npos);
}

// Each tensor has a bucket, and the session looks for NaN before any bucket starts.
TEST(ManyTensors, OfManyBucketsAreReduced) {
  constexpr std::size_t kTensors = 4000 / kStepShare;
  Policy policy = Policy::uniform("exact");
  policy.bucket_bytes = 1024;
  policy.small.reset();
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradients(kTensors * 256, 2);
    Session session(transport, policy, {.nonfinite = Nonfinite::skip});
    for (std::size_t i = 0; i < kTensors; ++i) {
      session.add(std::to_string(i), view(&gradients[256 * i], 256));
    }
    for (std::size_t i = kTensors; i-- > 0;) {
      session.ready(static_cast<TensorId>(i));
    }
    EXPECT_FALSE(session.finish().skipped);
    EXPECT_EQ(gradients[1000], 2);
  });
}

}  // namespace
}  // namespace gradwire::test
