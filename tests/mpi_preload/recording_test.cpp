// Gradients that the preload records of an unchanged job (GRADWIRE_RECORD_GRADIENTS).
#include "record/gradient_files.hpp"
#include "tests/mpi_preload/preload.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

TEST_P(Preload, RankZeroRecordsWhatItsSumsBeginWith) {
  for (const std::string& how : {observing(), preload()}) {
    const ScratchFolder folder;
    const std::string to = (folder.path() / "gradients").string();
    const Outcome outcome = with(2, how + " GRADWIRE_RECORD_GRADIENTS=" + to + ":steps=2", "equal_layers");
    expect_ok(outcome, "equal_layers");
    EXPECT_TRUE(contains(outcome, "of 2 steps are recorded in " + to)) << outcome.output;
    const auto found = record::list_gradients(to).gradients;
    ASSERT_EQ(found.size(), 8U) << "four layers of 20,000 elements";
    EXPECT_EQ(found.front().step, 0U);
    EXPECT_EQ(found.back().step, 1U);
    std::vector<float> values(found.front().count);
    record::GradientValues(found.front()).read(0, found.front().count, values.data());
    EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float value) { return value != 0; }));
  }
}

TEST_P(Preload, ARelativeFolderOfRecordingsIsThatOfTheStart) {
  const ScratchFolder folder;
  const std::filesystem::path elsewhere = folder.path() / "elsewhere";
  std::filesystem::create_directory(elsewhere);
  const Outcome outcome = with(2,
                               "-C '" + folder.path().string() + "' JOB_DIRECTORY='" + elsewhere.string() + "' " +
                                   observing() + " GRADWIRE_RECORD_GRADIENTS=own:steps=1",
                               "equal_layers");
  expect_ok(outcome, "equal_layers");
  EXPECT_EQ(record::list_gradients(folder.path() / "own").gradients.size(), 4U) << outcome.output;
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

}  // namespace
}  // namespace gradwire::test
