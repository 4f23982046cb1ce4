// What a drop-in records of an unchanged job: whole steps, once they are known.
#include "drop_in/gradient_recording.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <vector>

#include "record/gradient_files.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using drop_in::Function;
using drop_in::GradientRecording;
using ::testing::Each;
using ::testing::HasSubstr;

class Recording : public ::testing::Test {
 protected:
  GradientRecording make(std::uint64_t steps) {
    return GradientRecording({.directory = (folder_.path() / "g").string(), .steps = steps}, 0, 4);
  }
  /// One step of a job with two tensors of different sizes, whose values are the step's number.
  bool step(GradientRecording& recording, int number) {
    std::fill(large_.begin(), large_.end(), static_cast<float>(number));
    std::fill(small_.begin(), small_.end(), static_cast<float>(-number));
    const bool first = recording.call(Function::mpi_allreduce, view(large_.data(), large_.size()), "layer/weight");
    return recording.call(Function::mpi_allreduce, view(small_.data(), small_.size()), "") && first;
  }
  [[nodiscard]] std::vector<record::StoredGradient> recorded() const {
    return record::list_gradients(folder_.path() / "g").gradients;
  }

  ScratchFolder folder_;
  std::vector<float> large_ = std::vector<float>(3000);
  std::vector<float> small_ = std::vector<float>(200);
};

TEST_F(Recording, WholeStepsAreRecordedOnceTheyAreKnown) {
  GradientRecording recording = make(3);
  int steps = 0;
  while (step(recording, steps)) {
    ++steps;
    ASSERT_LT(steps, 40);
  }
  EXPECT_EQ(steps, 10) << "8 steps have 16 calls, and 3 are recorded";
  const auto found = recorded();
  ASSERT_EQ(found.size(), 6U);
  EXPECT_EQ(found[0].name, "call-0000-3000-layer/weight");
  EXPECT_EQ(found[0].file.filename(), "call-0000-3000-layer_weight.npy");
  EXPECT_EQ(found[1].name, "call-0001-200");
  EXPECT_EQ(found[5].step, 2U);
  std::vector<float> values(200);
  record::GradientValues(found[5]).read(0, 200, values.data());
  EXPECT_THAT(values, Each(-10));
  EXPECT_THAT(recording.end(), HasSubstr("6 buffers of 3 steps are recorded in "));
  EXPECT_EQ(recording.end(), "") << "said once";
}

TEST_F(Recording, TheSumOfALossTellsEqualLayersApart) {
  GradientRecording recording = make(1);
  std::vector<std::vector<float>> buffers;  // new in each step
  bool more = true;
  for (int i = 0; more && i < 40; ++i) {
    for (int layer = 0; more && layer < 3; ++layer) {
      const std::vector<float>& buffer = buffers.emplace_back(500);
      more = recording.call(Function::mpi_allreduce, view(buffer.data(), buffer.size()), "");
    }
    recording.other_call();
  }
  const auto found = recorded();
  ASSERT_EQ(found.size(), 3U) << "16 calls are no whole number of steps";
  EXPECT_EQ(found[0].name, "call-0000-500");
  EXPECT_EQ(found[0].step, 0U);
}

TEST_F(Recording, CallsOfAnotherSizeInTheMiddleOfAStepBeginAnew) {
  GradientRecording recording = make(3);
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(step(recording, i));
  }
  const std::vector<float> other(700);
  EXPECT_TRUE(recording.call(Function::mpi_allreduce, view(other.data(), other.size()), "")) << "no step has it";
  bool more = true;
  for (int i = 9; more && i < 100; ++i) {
    more = step(recording, i);
  }
  const auto found = recorded();
  ASSERT_EQ(found.size(), 6U);
  EXPECT_EQ(found[2].step, 1U);
  EXPECT_EQ(found[5].step, 2U);
}

TEST_F(Recording, AJobThatEndsEarlySaysSo) {
  GradientRecording recording = make(3);
  EXPECT_TRUE(step(recording, 0));
  EXPECT_THAT(recording.end(), HasSubstr("no gradients were recorded in "));
}

TEST_F(Recording, AStepThatIsCutOffIsKept) {
  GradientRecording recording = make(3);
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(step(recording, i));
  }
  EXPECT_THAT(recording.end(), HasSubstr("2 buffers of 1 steps"));
  EXPECT_EQ(recorded().size(), 2U);
}

TEST_F(Recording, CallsWithoutStepsAreRecordedAsOne) {
  GradientRecording recording = make(4);
  std::vector<float> values(5000);
  std::uint64_t calls = 0;
  bool more = true;
  for (; more && calls < 3000; ++calls) {  // never the same size again
    more = recording.call(Function::mpi_allreduce, view(values.data(), 1000 + calls), "");
  }
  EXPECT_EQ(calls, GradientRecording::kMostCalls + 4);
  const auto found = recorded();
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[3].step, 0U);
  EXPECT_THAT(recording.end(), HasSubstr("4 buffers of calls, in which no steps were found, are recorded"));
}

TEST_F(Recording, AnErrorEndsItAndNotTheJob) {
  GradientRecording recording = make(3);
  std::filesystem::remove_all(folder_.path() / "g");
  std::ofstream(folder_.path() / "g") << "a file is in the way";
  bool more = true;
  for (int i = 0; i < 20; ++i) {
    more = step(recording, i);
  }
  EXPECT_FALSE(more);
  EXPECT_THAT(recording.end(), HasSubstr("gradients are no longer recorded, and the job goes on: "));
}

}  // namespace
}  // namespace gradwire::test
