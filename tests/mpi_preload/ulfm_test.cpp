// Tests that MPI reports the same to a job that handles the end of ranks itself with and without the drop-in, rank by
// rank and call by call. Needs an Open MPI with ULFM (5 and later): the one in the folder GRADWIRE_ULFM, the one that
// `./run setup elastic` has fetched, or the one of this build.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/run_program.hpp"

namespace gradwire::test {
namespace {

// The job, built as a user builds it.
struct Jobs {
  std::filesystem::path folder;
  std::string launch;
  std::string missing;  // why there is no program; empty if there is one
};

std::string tool(const std::string& name, const std::string& built_with) {
  if (const char* const folder = std::getenv("GRADWIRE_ULFM")) {  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(folder) + "/bin/" + name;
  }
  const std::string fetched = GRADWIRE_SOURCE "/build/elastic/bin/" + name;
  return std::filesystem::exists(fetched) ? fetched : built_with;
}

Jobs make_jobs() {
  Jobs jobs;
  jobs.folder = std::filesystem::temp_directory_path() / ("gradwire_ulfm_" + std::to_string(::getpid()));
  std::filesystem::create_directories(jobs.folder);
  const std::string drop_in = GRADWIRE_OPEN_MPI_DROP_IN;
  const std::string folder = std::filesystem::path(drop_in).parent_path().string();
  const std::string compile = "'" + tool("mpicxx", GRADWIRE_MPICXX) +
                              "' -std=c++17 -pthread '" GRADWIRE_SOURCE "/tests/mpi_preload/ulfm_job.cpp' -o '" +
                              jobs.folder.string();
  jobs.launch = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 60 '" +
                tool("mpirun", GRADWIRE_MPIEXEC) + "' --with-ft ulfm --oversubscribe --mca mpi_yield_when_idle 1 -np ";
  if (const Outcome plain = run_program(compile + "/plain' 2>&1"); plain.status != 0) {
    EXPECT_EQ(std::getenv("GRADWIRE_ULFM"), nullptr) << plain.output;
    jobs.missing =
        "the MPI of this build has no ULFM; `./run setup elastic` fetches Open MPI 5, GRADWIRE_ULFM=FOLDER names "
        "one. " +
        plain.output.substr(0, plain.output.find('\n'));
    return jobs;
  }
  if (run_program(jobs.launch + "1 '" + (jobs.folder / "plain").string() + "' probe").output.find("goes on") ==
      std::string::npos) {
    jobs.missing = "this MPI was built without fault tolerance";
    return jobs;
  }
  const Outcome replaced = run_program(compile + "/replaced' -DREPLACED -I'" GRADWIRE_SOURCE "/include' -L'" + folder +
                                       "' -Wl,-rpath,'" + folder + "' -lgradwire_mpi 2>&1");
  EXPECT_EQ(replaced.status, 0) << replaced.output;
  return jobs;
}

class Ulfm : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { jobs_ = new Jobs(make_jobs()); }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(jobs_->folder);
    delete jobs_;
  }
  void SetUp() override {
    if (!jobs_->missing.empty()) {
      GTEST_SKIP() << jobs_->missing;
    }
  }

  static Outcome run(const std::string& environment, const std::string& job, const std::string& scenario) {
    return run_program(jobs_->launch + "4 env GRADWIRE_CODEC=int8 " + environment + " '" +
                       (jobs_->folder / job).string() + "' " + scenario);
  }
  static Outcome plain(const std::string& scenario) { return run("", "plain", scenario); }
  static Outcome preloaded(const std::string& scenario) {
    return run("LD_PRELOAD='" GRADWIRE_OPEN_MPI_DROP_IN "'", "plain", scenario);
  }
  static Outcome replaced(const std::string& scenario) { return run("", "replaced", scenario); }

  // The errors that each rank got, and the bits of its sums after them.
  struct Told {
    std::map<std::string, std::string> codes;
    std::set<std::string> values;
  };
  static Told told(const Outcome& outcome) {
    Told all;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("rank ")) {
        const std::size_t values = line.find(" values=");
        all.codes[line.substr(0, line.find(':'))] = line.substr(line.find(':') + 1, values - line.find(':') - 1);
        all.values.insert(values == std::string::npos ? "" : line.substr(values));
      }
    }
    return all;
  }

  static void expect_same(const std::string& scenario, std::size_t left, const Outcome& with) {
    const Outcome without = plain(scenario);
    const Told expected = told(without);
    const Told got = told(with);
    EXPECT_EQ(expected.codes.size(), left) << without.output;
    EXPECT_EQ(got.codes, expected.codes) << with.output;
    EXPECT_EQ(with.status, without.status) << with.output;
    EXPECT_EQ(got.values.size(), 1U) << "sums of the ranks differ:\n" << with.output;
    if (!expected.values.begin()->empty()) {
      EXPECT_NE(got.values, expected.values) << "nothing was compressed:\n" << with.output;
    }
  }
  static void expect_same(const std::string& scenario, std::size_t left) {
    expect_same(scenario, left, preloaded(scenario));
  }

 private:
  static inline Jobs* jobs_ = nullptr;
};

// Ranks agree in the first sum; in the second they already have.
TEST_F(Ulfm, ADeathInABlockingSum) {
  for (const std::string step : {"1", "2", "3"}) {
    SCOPED_TRACE(step);
    expect_same("blocking " + step, 3);
  }
  expect_same("blocking", 3, replaced("blocking"));
}

TEST_F(Ulfm, ADeathInAReduceScatter) { expect_same("scattered", 3); }

TEST_F(Ulfm, ADeathInANonblockingSum) {
  expect_same("nonblocking 1", 3);
  expect_same("nonblocking 3", 3);
}

TEST_F(Ulfm, ADeathInAPersistentSum) { expect_same("persistent", 3); }

TEST_F(Ulfm, ARevocationWithoutADeath) {
  expect_same("revoked", 4);
  expect_same("revoked", 4, replaced("revoked"));
  expect_same("revoked_nonblocking", 4);
}

TEST_F(Ulfm, AHandlerThatThrowsRunsOncePerCall) {
  expect_same("thrown 1", 3);
  expect_same("thrown 3", 3);
}

TEST_F(Ulfm, AWholeCommunicatorThatIsShrunkGoesOn) { expect_same("whole", 4); }

// Residuals of 2^22 floats take 16 MiB, and the rank's share takes 4 more.
TEST_F(Ulfm, ResidualsGoWhenARevokedCommunicatorIsShrunk) {
  const Outcome outcome =
      run("LD_PRELOAD='" GRADWIRE_OPEN_MPI_DROP_IN "' GRADWIRE_CODEC=int4", "plain", "shrunk_memory");
  EXPECT_EQ(told(outcome).codes.size(), 4U) << outcome.output;
  EXPECT_GE(number_in(outcome, "rank 1: revoke=0 shrink=0 given-back=([-0-9]+)"), 16) << outcome.output;
}

// The rank ends at a random time: ranks may learn of it in different sums, but nothing else differs.
TEST_F(Ulfm, ADeathInsideASum) {
  for (const std::string microseconds : {"0", "300", "600", "1000", "2000", "5000", "20000"}) {
    const Outcome outcome = preloaded("inside " + microseconds);
    const Told all = told(outcome);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_EQ(all.codes.size(), 3U) << outcome.output;
    EXPECT_EQ(all.values.size(), 1U) << outcome.output;
    for (const auto& [rank, codes] : all.codes) {
      EXPECT_EQ(codes, " step1=0 known revoke=0 after-revoke=77 shrink=0 after-shrink=77 free=0 ranks=3 failed-steps=0")
          << rank << ", " << microseconds << " us";
    }
  }
}

TEST_F(Ulfm, AJobWhoseErrorsAreFatalEndsAsWithout) {
  const Outcome without = plain("fatal");
  const Outcome with = preloaded("fatal");
  EXPECT_NE(with.status, 0);
  EXPECT_EQ(with.status, without.status) << with.output;
  EXPECT_NE(with.output.find("MPI_ERR_PROC_FAILED"), std::string::npos) << with.output;
}

}  // namespace
}  // namespace gradwire::test
