// One rank of three cannot take part, for each reason that a rank may have alone: then no rank compresses, the sums are
// correct, and a line of that rank says why. Mutation tried: consent is given whatever the rank lacks; then the job
// ends with an error of a call, or hangs.
#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

class StandAside : public Preload {
 protected:
  // Rank 1 has `more` in its environment.
  [[nodiscard]] Outcome one_of_three(const std::string& settings, const std::string& more,
                                     const std::string& level = "multiple") const {
    return with_each({settings, settings + " " + more, settings}, "short_of_something " + level);
  }
  [[nodiscard]] std::string scarce(const std::string& what) const {
    return "LD_PRELOAD='" GRADWIRE_SCARCE ":" + GetParam().drop_in + "' " + what;
  }
  // Returns the number of compressed calls of a function, over all ranks.
  [[nodiscard]] std::uint64_t compressed(const std::string& function) const {
    std::uint64_t calls = 0;
    const json told = report();
    for (const json& row : told.at("classes")) {
      calls += row.at("function") == function ? row.at("compressed_calls").get<std::uint64_t>() : 0;
    }
    return calls;
  }
  // Returns both ways to ask for compression: at once, and after comparisons.
  [[nodiscard]] std::vector<std::string> lossy() const { return {preload(), measuring()}; }
};

TEST_P(StandAside, NobodyIsShortOfAnything) {  // the control: three calls of each kind on two communicators
  expect_ok(with(3, preload(), "short_of_something multiple"), "short_of_something");
  EXPECT_EQ(compressed("MPI_Allreduce"), 3U * 3 * 2);
  EXPECT_EQ(compressed("MPI_Iallreduce"), 3U * (3 + 2)) << "except the first on the duplicate, before ranks agreed";
}

TEST_P(StandAside, OneRankHasNoMemory) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  for (const std::string& settings : lossy()) {
    const Outcome outcome = one_of_three(settings, scarce("SCARCE_MEMORY=50000"));
    expect_ok(outcome, "short_of_something");
    EXPECT_TRUE(contains(outcome, "rank 1: calls on a communicator of 3 ranks pass: this rank has no memory"))
        << outcome.output;
    EXPECT_EQ(compressed_calls(report()), 0U);
    EXPECT_TRUE(has_reason(report(), "some rank cannot compress here"));
  }
}

TEST_P(StandAside, OneRankCanStartNoThread) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  for (const std::string& settings : lossy()) {
    const Outcome outcome = one_of_three(settings, scarce("SCARCE_THREADS=0"));
    expect_ok(outcome, "short_of_something");
    EXPECT_TRUE(
        contains(outcome, "rank 1: MPI_Iallreduce and the like pass through on all ranks: no thread can be started"))
        << outcome.output;
    EXPECT_EQ(compressed("MPI_Iallreduce"), 0U);
  }
  expect_ok(one_of_three(preload(), scarce("SCARCE_THREADS=0")), "short_of_something");
  EXPECT_EQ(compressed("MPI_Allreduce"), 3U * 3 * 2) << "calls without a request need no thread";
}

// The thread for MPI_COMM_WORLD exists, the one for the duplicate does not.
TEST_P(StandAside, OneRankCanStartNoThreadLater) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  const Outcome outcome = one_of_three(preload(), scarce("SCARCE_THREADS=1"));
  expect_ok(outcome, "short_of_something");
  EXPECT_TRUE(contains(
      outcome,
      "rank 1: MPI_Iallreduce and the like pass on a communicator of 3 ranks: this rank cannot start a thread"))
      << outcome.output;
  EXPECT_EQ(compressed("MPI_Iallreduce"), 3U * 3) << "on MPI_COMM_WORLD";
  EXPECT_EQ(compressed("MPI_Allreduce"), 3U * 3 * 2);
}

TEST_P(StandAside, OneRankHasALowerThreadLevel) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  for (const std::string& settings : lossy()) {
    const Outcome outcome = one_of_three(settings, "JOB_LEVEL=init");
    expect_ok(outcome, "short_of_something");
    EXPECT_TRUE(contains(outcome, "a rank initialised MPI below MPI_THREAD_MULTIPLE")) << outcome.output;
    EXPECT_EQ(compressed("MPI_Iallreduce"), 0U);
  }
}

// MPI sessions need no MPI_Init, in which ranks learn what the others do. Each rank has one, since a communicator made
// from them has all ranks.
TEST_P(StandAside, CallsBeforeMpiInitPass) {
  const Outcome outcome = with(3, preload(), "short_of_something session");
  expect_ok(outcome, "short_of_something");
  if (GetParam().name == "Mpich") {  // MPI 4
    EXPECT_TRUE(contains(outcome, "calls on communicators of an MPI session pass before MPI_Init")) << outcome.output;
    EXPECT_EQ(compressed("MPI_Allreduce"), 3U * (3 * 2 + 1));
  }
}

TEST_P(StandAside, OneRankIsDisabledOrOfAnotherMind) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  for (const std::string& settings : lossy()) {
    for (const std::string& other :
         {std::string("GRADWIRE_DISABLE=1"), std::string("GRADWIRE_CODEC=int4"), std::string("GRADWIRE_CODEC=")}) {
      const Outcome outcome = one_of_three(settings, other);
      expect_ok(outcome, "short_of_something");
      EXPECT_TRUE(contains(outcome, "every call is passed through: ")) << outcome.output;
      EXPECT_EQ(compressed_calls(report()), 0U) << other;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, StandAside, ::testing::ValuesIn(libraries()),
                         [](const auto& library) { return library.param.name; });

}  // namespace
}  // namespace gradwire::test
