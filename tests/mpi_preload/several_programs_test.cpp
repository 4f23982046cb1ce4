// Runs `gradwire run -- mpirun -np 2 a : -np 1 b`, where b has no drop-in: every call passes on all ranks, and a line
// names the ranks without it. If the drop-in were preloaded by hand, the job would end: see
// ARankWithoutThePreloadIsNamed.
#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

class SeveralPrograms : public Preload {
 protected:
  // Runs two ranks of one program and one of another, under the tool.
  [[nodiscard]] Outcome run(const std::string& program, const std::string& other) const {
    const std::string launch = GetParam().launch;
    const std::size_t mpiexec = launch.find("timeout");  // after the variables for it
    return run_program(launch.substr(0, mpiexec) + "'" GRADWIRE_TOOL "' run --codec int8 --report '" + report_file() +
                       "' -- " + launch.substr(mpiexec) + " 2 " + program + " :" + launch.substr(launch.rfind(' ')) +
                       " 1 " + other);
  }
  void expect_passed(const Outcome& outcome) const {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome, "sum ok")) << outcome.output;
    EXPECT_TRUE(contains(outcome, "every call is passed through: rank 2 of 3 runs without gradwire")) << outcome.output;
    EXPECT_FALSE(contains(outcome, "called no function that gradwire handles")) << outcome.output;
    EXPECT_EQ(compressed_calls(report()), 0U);
  }
};

TEST_P(SeveralPrograms, AllHaveIt) {  // the control
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  const Outcome outcome = run("'" + GetParam().sum + "'", "'" + GetParam().sum + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome, "sums rounded")) << outcome.output;
  EXPECT_EQ(compressed_calls(report()), 3U * 3);
}

TEST_P(SeveralPrograms, OneIsNotPreloaded) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  expect_passed(run("'" + GetParam().sum + "'", "env -u LD_PRELOAD '" + GetParam().sum + "'"));
}

// Its calls go to its own MPI, whatever is preloaded.
TEST_P(SeveralPrograms, OneIsLinkedStatically) {
#ifdef GRADWIRE_MPICH_STATIC_SUM
  if (GetParam().name == "Mpich") {
    expect_passed(run("'" + GetParam().sum + "'", "'" GRADWIRE_MPICH_STATIC_SUM "'"));
    return;
  }
#endif
  GTEST_SKIP() << "no static library of this MPI";
}

INSTANTIATE_TEST_SUITE_P(Libraries, SeveralPrograms, ::testing::ValuesIn(libraries()),
                         [](const auto& library) { return library.param.name; });

}  // namespace
}  // namespace gradwire::test
