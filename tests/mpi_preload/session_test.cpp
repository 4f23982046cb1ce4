// A program with sessions of the library under the preload: a session's own calls of MPI are not the job's.
#include "record/gradient_files.hpp"
#include "tests/mpi_preload/preload.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

class SessionUnderPreload : public Preload {
 protected:
  void SetUp() override {
    if (GetParam().name != "OpenMpi") {
      GTEST_SKIP() << "the library is built for one MPI";
    }
    Preload::SetUp();
  }
  [[nodiscard]] Outcome session(const std::string& environment) const {
    return run_program(GetParam().launch + " 2 env " + environment + " '" GRADWIRE_BIN "/mpi_preload_session_job'");
  }
};

INSTANTIATE_TEST_SUITE_P(EachMpi, SessionUnderPreload, ::testing::ValuesIn(libraries()),
                         [](const auto& library) { return library.param.name; });

// Mutation tried: no communicator is private; then the report has the session's sums, too: twice the bytes.
TEST_P(SessionUnderPreload, OnlyTheJobsOwnCallsAreCounted) {
  for (const std::string& how : {observing(), preload(), measuring()}) {
    const Outcome outcome = session(how);
    expect_ok(outcome, "session");
    const json totals = report().at("totals");
    EXPECT_EQ(totals.at("calls"), 80) << "forty of each rank; " << how << '\n' << report();
    EXPECT_EQ(totals.at("bytes_in"), 80 * (1 << 20)) << how;
    EXPECT_EQ(compressed_calls(report()), how == preload() ? 80U : 0U);
  }
}

// Mutation tried: record_call() sees all communicators.
TEST_P(SessionUnderPreload, OnlyTheJobsOwnCallsAreRecorded) {
  const ScratchFolder folder;
  const std::string to = (folder.path() / "gradients").string();
  expect_ok(session(observing() + " GRADWIRE_RECORD_GRADIENTS=" + to + ":steps=8"), "session");
  EXPECT_EQ(record::list_gradients(to).gradients.size(), 8U) << "one a step";
}

}  // namespace
}  // namespace gradwire::test
