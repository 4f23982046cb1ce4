// Session::record_gradients: one rank writes what it gave to ready(), and the results stay what they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "gradwire/session.hpp"
#include "record/gradient_files.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> values_of(const record::StoredGradient& gradient) {
  std::vector<float> values(gradient.count);
  record::GradientValues(gradient).read(0, gradient.count, values.data());
  return values;
}

TEST(RecordGradients, WritesTheLocalGradientsOfTheNextSteps) {
  const ScratchFolder folder;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<float>(transport->rank());
    Session session(transport, Policy::uniform("exact"));
    std::vector<float> first(5), second(3), elsewhere(3);
    const TensorId one = session.add("layer/first", view(first.data(), first.size()));
    const TensorId two = session.add("second", view(second.data(), second.size()));
    for (int step = 0; step < 4; ++step) {
      if (step == 1 && transport->rank() == 1) {
        session.record_gradients(folder.path() / "own", 2);
      }
      const float value = 10 * rank + static_cast<float>(step);
      std::fill(first.begin(), first.end(), value);
      std::fill(elsewhere.begin(), elsewhere.end(), -value);
      session.ready(two, view(elsewhere.data(), elsewhere.size()));
      session.ready(one);
      session.finish();
      EXPECT_THAT(first, Each(5 + static_cast<float>(step))) << "the mean is what it is without a recording";
    }
  });
  const auto found = record::list_gradients(folder.path() / "own").gradients;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].name, "second");
  EXPECT_EQ(found[0].step, 1U);
  EXPECT_THAT(values_of(found[0]), Each(-11));
  EXPECT_EQ(found[1].name, "layer/first");
  EXPECT_EQ(found[1].file.filename(), "layer_first.npy");
  EXPECT_THAT(values_of(found[1]), ElementsAre(11, 11, 11, 11, 11));
  EXPECT_EQ(found[3].step, 2U);
  EXPECT_THAT(values_of(found[3]), Each(12));
}

TEST(RecordGradients, AccumulatedGradientsAreRecordedOnce) {
  const ScratchFolder folder;
  run_ranks(1, [&](const std::shared_ptr<Transport>& transport) {
    Session session(transport, Policy::uniform("exact"));
    std::vector<float> gradient(4, 1);
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    session.record_gradients(folder.path() / "own", 1);
    {
      const auto scope = session.no_sync();
      session.ready(id);
    }
    std::fill(gradient.begin(), gradient.end(), 2.0F);
    session.ready(id);
    session.finish();
  });
  const auto found = record::list_gradients(folder.path() / "own").gradients;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(values_of(found[0]), Each(2));
}

// Mutation tried: a gradient is recorded although ready() refuses it.
TEST(RecordGradients, ARepeatedReadyDoesNotReplaceTheFile) {
  const ScratchFolder folder;
  run_ranks(1, [&](const std::shared_ptr<Transport>& transport) {
    Session session(transport, Policy::uniform("exact"));
    std::vector<float> gradient(4, 1), other(4, 2);
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    session.record_gradients(folder.path() / "own", 1);
    session.ready(id);
    EXPECT_THAT(error_of([&] { session.ready(id, view(other.data(), other.size())); }).what(),
                HasSubstr("was ready already"));
    session.finish();
  });
  const auto found = record::list_gradients(folder.path() / "own").gradients;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(values_of(found[0]), Each(1));
}

TEST(RecordGradients, WhatCannotBeRecordedIsRefusedOrEndsTheRecordingAlone) {
  const ScratchFolder folder;
  run_ranks(1, [&](const std::shared_ptr<Transport>& transport) {
    Session session(transport, Policy::uniform("exact"));
    std::vector<float> gradient(4, 1);
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    EXPECT_THAT(error_of([&] { session.record_gradients(folder.path(), 0); }).what(), HasSubstr("steps is 0"));
    EXPECT_THAT(error_of([&] { session.record_gradients(folder.path(), 513); }).what(), HasSubstr("it is 1 to 512"));
    session.record_gradients(folder.path() / "own", 2);
    std::filesystem::remove_all(folder.path() / "own");
    std::ofstream(folder.path() / "own") << "a file is in the way";
    session.ready(id);
    EXPECT_THAT(error_of([&] { session.record_gradients(folder.path() / "other", 1); }).what(),
                HasSubstr("record_gradients"))
        << "a step is under way";
    session.finish();
    EXPECT_EQ(session.step(), 1U) << "training goes on";
  });
}

}  // namespace
}  // namespace gradwire::test
