// Runs real programs under the preload, for each installed MPI: passed calls are exact, compressed calls are within the
// codec's bound, and nothing ever hangs.
#include <random>

#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

TEST_P(Preload, WhatIsNotCompressedIsExact) {
  for (const char* name : {"exact_types", "exact_shapes"}) {
    expect_ok(plain(3, name), name);
    for (const int ranks : {1, 3, 4}) {
      expect_ok(with(ranks, preload(), name), name);
      EXPECT_EQ(compressed_calls(report()), 0U);
    }
  }
  expect_ok(with(3, preload(), "exact_types"), "exact_types");
  EXPECT_TRUE(has_reason(report(), "neither sum nor average"));
  EXPECT_TRUE(has_reason(report(), "type is not compressed"));
  EXPECT_TRUE(has_reason(report(), "below the floor"));
}

TEST_P(Preload, LargeFloatSumsAreCompressed) {
  const Outcome before = plain(3, "compressed");
  expect_ok(before, "compressed");
  EXPECT_TRUE(contains(before, "different no"));
  for (const int ranks : {2, 3, 4}) {
    const Outcome after = with(ranks, preload(), "compressed");
    expect_ok(after, "compressed");
    EXPECT_TRUE(contains(after, "different yes"));
    const json totals = report().at("totals");
    EXPECT_EQ(totals.at("compressed_calls"), 11 * ranks);
    EXPECT_EQ(totals.at("calls"), 11 * ranks);
    EXPECT_GT(totals.at("ratio_compressed"), 3.9);
  }
  const Outcome alone = with(1, preload(), "compressed");
  EXPECT_TRUE(contains(alone, "different no")) << alone.output;
  EXPECT_TRUE(has_reason(report(), "communicator of one rank"));
}

TEST_P(Preload, SumsForOneRankAreCompressed) {
  const Outcome before = plain(3, "rooted");
  expect_ok(before, "rooted");
  EXPECT_TRUE(contains(before, "different no"));
  for (const int ranks : {2, 3}) {
    const Outcome after = with(ranks, preload(), "rooted");
    expect_ok(after, "rooted");
    EXPECT_TRUE(contains(after, "different yes"));
    EXPECT_EQ(compressed_calls(report()), static_cast<std::uint64_t>((ranks + 1) * ranks));
    EXPECT_TRUE(has_reason(report(), "type is not compressed"));
  }
}

// The jobs use mpif.h, `use mpi` and `use mpi_f08`. Each makes six calls that may be compressed; two of them return
// requests, of which the one on a duplicate passes, since its ranks have made no blocking call there.
TEST_P(Preload, JobsInFortran) {
  const bool open_mpi = GetParam().name == "OpenMpi";
  const std::string job = std::string(GRADWIRE_BIN) + (open_mpi ? "/mpi_fortran_job" : "/mpich_fortran_job");
  if (!std::filesystem::exists(job)) {
    GTEST_SKIP() << "this MPI has no Fortran compiler here";
  }
  for (const std::string level : {"single", "multiple"}) {
    std::filesystem::remove(report_file());
    const Outcome outcome = run_program(GetParam().launch + " 3 env " + preload() + " '" + job + "' " + level);
    expect_ok(outcome, "fortran");
    EXPECT_EQ(compressed_calls(report()), level == "multiple" ? 3U * 5 : 3U * 4);
  }
  std::filesystem::remove(report_file());
  const Outcome by_any =
      run_program(GetParam().launch + " 3 env LD_PRELOAD='" GRADWIRE_ANY "' GRADWIRE_CODEC=int8 GRADWIRE_REPORT='" +
                  report_file() + "' '" + job + "' single");
  expect_ok(by_any, "fortran");
  EXPECT_EQ(compressed_calls(report()), 3U * 4);
}

TEST_P(Preload, ResultsOverTheirOwnInput) {
  for (const int ranks : {2, 3}) {
    expect_ok(with(ranks, preload(), "overlap"), "overlap");
    const int calls = GetParam().name == "Mpich" ? 7 : 9;
    EXPECT_EQ(compressed_calls(report()), static_cast<std::uint64_t>(ranks * calls));
  }
}

// Mutation tried: aliased buffers are compressed; then MPICH's MPI_ERR_BUFFER is missing.
TEST_P(Preload, AliasedBuffersAreTheLibrarysToRefuse) {
  const Outcome before = plain(2, "aliased");
  const Outcome after = with(2, preload(), "aliased");
  expect_ok(before, "aliased");
  expect_ok(after, "aliased");
  EXPECT_EQ(errors_told(after), errors_told(before));
  EXPECT_TRUE(has_reason(report(), "bad arguments"));
}

TEST_P(Preload, FortransRealsAreFloats) {
  expect_ok(with(2, preload(), "fortran_reals"), "fortran_reals");
  EXPECT_EQ(compressed_calls(report()), 2U);
  EXPECT_TRUE(has_reason(report(), "type is not compressed"));
}

// The report counts calls that took the long way: there are none, since they need no agreement.
TEST_P(Preload, SmallCallsOnManyCommunicatorsTakeTheShortWay) {
  expect_ok(with(2, preload(), "alternating"), "alternating");
  const json told = report();
  std::uint64_t long_way = 0;
  for (const json& row : told.at("classes")) {
    long_way += row.at("count") != 0 ? row.at("calls").get<std::uint64_t>() : 0;
  }
  EXPECT_EQ(long_way, 0U);
  EXPECT_EQ(told.at("totals").at("calls"), 2 * 8 * 50) << "calls of both ranks count";
  EXPECT_TRUE(told.at("note").is_null());
}

TEST_P(Preload, NamesDoNotPileUp) {
  const Outcome outcome = with(1, preload(), "many_names");
  expect_ok(outcome, "many_names");
  EXPECT_TRUE(contains(outcome, "names took ")) << "gradwire_name is not there";
}

TEST_P(Preload, ResidualsGoWithTheirCommunicator) {
  expect_ok(with(2, preload() + " " + policy("int4", "[defaults]\ncodec = \"int4\"\n"), "residuals"), "residuals");
  // Buffers show the step, and an address that the allocator gives again may hide it on some communicator.
  const std::uint64_t calls = compressed_calls(report());
  EXPECT_LE(calls, 2U * 30 * (20 - 16));
  EXPECT_GE(calls, 2U * 20 * (20 - 16));
}

TEST_P(Preload, CommunicatorsComeAndGoWithoutALeak) {
  for (const char* level : {"init", "multiple"}) {
    expect_ok(with(4, preload(), std::string("communicators ") + level), "communicators");
    EXPECT_EQ(compressed_calls(report()), 4 * (1 + 3 * 70 + 1U));
  }
}

TEST_P(Preload, IntercommunicatorsPass) {
  expect_ok(with(3, preload(), "intercommunicator"), "intercommunicator");
  EXPECT_TRUE(has_reason(report(), "intercommunicator"));
}

// The thread level is below MPI_THREAD_MULTIPLE.
TEST_P(Preload, RequestsAreTheLibrarys) {
  const Outcome outcome = with(3, preload(), "requests");
  expect_ok(outcome, "requests");
  EXPECT_TRUE(contains(outcome, "GRADWIRE_THREADS=multiple raises that"));
  EXPECT_TRUE(has_reason(report(), "nonblocking"));
  EXPECT_EQ(compressed_calls(report()), 3U);
}

TEST_P(Preload, RequestsAreCompressed) {
  for (const std::string& setting : {preload(), preload() + " GRADWIRE_THREADS=multiple"}) {
    expect_ok(with(3, setting, setting == preload() ? "requests_only multiple" : "requests_only"), "requests_only");
    const json told = report();
    std::uint64_t compressed = 0;
    for (const json& row : told.at("classes")) {
      compressed += row.at("function") == "MPI_Iallreduce" ? row.at("compressed_calls").get<std::uint64_t>() : 0;
    }
    EXPECT_EQ(compressed, GetParam().name == "Mpich" ? 18U : 15U) << "of MPI 4 also MPI_Iallreduce_c: " << told.dump(1);
  }
}

// Mutation tried: the ranks agree inside the first call, and the job hangs.
TEST_P(Preload, RequestsWaitForNobody) {
  for (const std::string level : {"init", "multiple"}) {
    for (const std::string& setting : {preload(), measuring(), preload() + " GRADWIRE_DRY_RUN=1"}) {
      const Outcome outcome = with(3, setting + " GRADWIRE_TIMEOUT=20s", "pipeline " + level);
      expect_ok(outcome, "pipeline");
      if (setting == preload()) {
        EXPECT_EQ(compressed_calls(report()), level == "multiple" ? 3U * 2 : 0U);
      }
    }
  }
}

TEST_P(Preload, RequestsWaitForNobodyWhereARankIsDisabled) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  expect_ok(with_each({preload(), preload() + " GRADWIRE_DISABLE=1"}, "pipeline multiple"), "pipeline");
  EXPECT_EQ(compressed_calls(report()), 0U);
}

// The programs are also correct under MPI alone. Mutation tried: a blocking call does not wait for requests before it,
// and the jobs hang.
TEST_P(Preload, RandomProgramsOfRequests) {
  expect_ok(plain(3, "request_programs multiple"), "request_programs");
  const std::string fewer = " JOB_SEEDS=8";
  for (const std::string& setting :
       {preload(), preload() + fewer + (GetParam().name == "OpenMpi" ? " JOB_FREES=1" : ""), measuring() + fewer,
        preload() + fewer + " GRADWIRE_CODEC=exact"}) {
    const Outcome outcome = with(3, setting, "request_programs multiple");
    expect_ok(outcome, "request_programs");
    EXPECT_FALSE(contains(outcome, "gradwire: rank")) << outcome.output;
  }
  expect_ok(with(3, preload() + fewer + " GRADWIRE_DRY_RUN=1", "request_programs multiple"), "request_programs");
}

// The thread that makes them and the waiting job share the core.
TEST_P(Preload, RequestsOnACoreEachAreNotLate) {
  for (const std::string& setting : {preload(), preload() + " GRADWIRE_CODEC=auto"}) {
    const Outcome outcome = with(2, setting, "requests_on_a_core multiple");
    expect_ok(outcome, "requests_on_a_core");
  }
}

TEST_P(Preload, ALateRequestIsNamed) {
  const Outcome outcome = with(3, preload() + " GRADWIRE_TIMEOUT=3s", "requests_given_up multiple");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "it hung: " << outcome.output;
  EXPECT_TRUE(contains(outcome, "rank 1")) << outcome.output;
}

// Nothing is made between MPI_Init and MPI_Finalize, however many communicators come and go, and whatever threads do
// meanwhile. JOB_ROUNDS and JOB_ALIVE in the environment play more of it.
TEST_P(Preload, ManyCommunicatorsAtOnceAndInTurn) {
  for (const std::string& setting : {preload(), observing()}) {
    expect_ok(with(2, setting, "communicator_churn"), "communicator_churn");
    EXPECT_EQ(compressed_calls(report()), setting == preload() ? 2U * 300 : 0U);
  }
  const Outcome outcome = with(2, preload(), "communicators_alive");
  expect_ok(outcome, "communicators_alive");
  EXPECT_GE(compressed_calls(report()), 2U * 2 * 256);
  EXPECT_LT(compressed_calls(report()), 2U * 2 * 400);
  EXPECT_TRUE(contains(outcome, "calls on some communicators pass")) << outcome.output;
}

TEST_P(Preload, ThreadsWithCommunicatorsOfTheirOwn) {
  for (const std::string& setting : {preload(), measuring(), observing(), preload() + " GRADWIRE_DISABLE=1"}) {
    expect_ok(with(2, setting, "two_threads multiple"), "two_threads");
  }
}

// Two threads make 15 kinds of calls on four communicators.
TEST_P(Preload, RandomProgramsOfAllKinds) {
  const std::string seed = std::to_string(std::random_device()() % 1000000);
  SCOPED_TRACE("JOB_FIRST_SEED=" + seed);
  for (const std::string& setting : {preload(), measuring(), observing()}) {
    expect_ok(with(3, setting + " JOB_FIRST_SEED=" + seed, "random_programs multiple"), "random_programs");
  }
}

TEST_P(Preload, EveryThreadLevel) {
  for (const char* level : {"init", "serialized", "multiple", "atexit"}) {
    expect_ok(with(3, preload(), std::string("threads ") + level), "threads");
    EXPECT_GE(compressed_calls(report()), 3U) << level;
  }
}

TEST_P(Preload, ErrorsAreTheLibrarysOwn) {
  const Outcome before = plain(3, "errors");
  const Outcome after = with(3, preload(), "errors");
  expect_ok(before, "errors");
  expect_ok(after, "errors");
  EXPECT_FALSE(errors_told(before).empty());
  EXPECT_EQ(errors_told(after), errors_told(before));
}

TEST_P(Preload, ErrorHandlersNeedNotReturn) {
  expect_ok(plain(2, "handlers"), "handlers");
  expect_ok(with(2, preload(), "handlers"), "handlers");
  EXPECT_EQ(compressed_calls(report()), 2U * 3);
}

#if defined(GRADWIRE_OPEN_MPI_JOB) && defined(GRADWIRE_MPICH_JOB)
// Handles are pointers in one library and ints in the other. Without this check, forwarding ended with SIGSEGV.
TEST(PreloadOfAnotherMpi, StopsWithASentenceOrPasses) {
  const std::vector<Library> both = libraries();
  const Library& open_mpi = both[0];
  const Library& mpich = both[1];
  const Outcome stopped =
      run_program("LD_PRELOAD='" + mpich.drop_in + "' timeout 60 '" + open_mpi.job + "' compressed");
  EXPECT_EQ(stopped.status, 1) << stopped.output;
  EXPECT_NE(stopped.output.find("gradwire: this drop-in is for MPICH, the job runs with Open MPI"), std::string::npos)
      << stopped.output;
  EXPECT_NE(stopped.output.find("start it with the mpirun of its own MPI"), std::string::npos);
  const auto passes = [](const std::string& preload, const std::string& job, const std::string& what) {
    const Outcome passed = run_program("LD_PRELOAD='" + preload + "' timeout 60 '" + job + "' compressed");
    EXPECT_EQ(passed.status, 0) << passed.output;
    EXPECT_NE(passed.output.find("gradwire: every call is passed through: this drop-in is for " + what),
              std::string::npos)
        << passed.output;
  };
  passes(open_mpi.drop_in, mpich.job, "Open MPI");
  // This is one of the many libraries that share MPICH's handles.
  passes(GRADWIRE_FAKE_VERSION ":" + mpich.drop_in, mpich.job, "MPICH, the job runs with Intel(R) MPI Library 2021.9");
}
#endif

// The drop-in must call only PMPI_ names: a public name would lead back to it, or to a function of the job.
TEST_P(Preload, OnlyItsOwnNamesAreVisible) {
  const std::string names = "nm -D '" + GetParam().drop_in + "' | awk '{print $(NF-1), $NF}'";
  EXPECT_EQ(run_program(names + " | grep -E '^U MPI_[A-Z][a-z]'").output, "");
  EXPECT_EQ(run_program(names + " | grep -E '^[TWDBRV] ' | grep -vE ' (MPIX?_|mpi_|ompi_[a-z_]+_f$|gradwire_)'").output,
            "");
  EXPECT_NE(run_program(names + " | grep -E '^T MPI_Allreduce$'").output, "");
}

INSTANTIATE_TEST_SUITE_P(Libraries, Preload, ::testing::ValuesIn(libraries()),
                         [](const auto& library) { return library.param.name; });

}  // namespace
}  // namespace gradwire::test
