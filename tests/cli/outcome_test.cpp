// Tests the reason why a job has left no report, found in its program and its ranks' messages, and the removal of
// folders that killed runs have left.
#include "cli/outcome.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/preload.hpp"
#include "cli/temporary.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Outcome : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  fs::path copy(const std::string& name) const {
    fs::create_directories(folder_);
    fs::copy_file(GRADWIRE_PROBE, folder_ / name);
    return folder_ / name;
  }
  [[nodiscard]] std::string why(const fs::path& job, const std::optional<SeenRanks>& seen = SeenRanks{},
                                std::vector<std::string> words = {}) const {
    words.push_back(job.string());
    return why_no_report(report_, {.words = words, .job = job}, seen);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gradwire_outcome_" + std::to_string(::getpid()));
  const ReportFile report_{std::nullopt, false};
};

TEST_F(Outcome, TheProgramSaysWhyNothingWasPreloaded) {
  EXPECT_THAT(why(GRADWIRE_STATIC_PROBE), HasSubstr("is statically linked"));
  EXPECT_THAT(why(GRADWIRE_PROBE), HasSubstr("the job is no MPI job: " GRADWIRE_PROBE " is linked with no MPI"));
  EXPECT_THAT(why(GRADWIRE_MPICH_PROBE), HasSubstr("called neither MPI_Init nor MPI_Init_thread"));
  EXPECT_THAT(why(GRADWIRE_MPICH_PROBE), HasSubstr("MPI_Session_init"));
  EXPECT_THAT(why("/bin/sh"), HasSubstr("what was started is no MPI job, is statically linked"));
  const fs::path set_user = copy("set_user");
  fs::permissions(set_user, fs::perms::set_uid, fs::perm_options::add);
  EXPECT_THAT(why(set_user), HasSubstr("the loader drops LD_PRELOAD"));
  const fs::path short_words = copy("short_words");
  std::fstream(short_words, std::ios::in | std::ios::out | std::ios::binary).seekp(4).put(1);  // ELFCLASS32
  EXPECT_THAT(why(short_words), HasSubstr("is a program of 32 bits"));
}

TEST_F(Outcome, TheCommandSaysWhatDropsTheEnvironment) {
  const auto with = [&](std::vector<std::string> words) { return why(GRADWIRE_PROBE, SeenRanks{}, std::move(words)); };
  EXPECT_THAT(with({"/usr/bin/sudo", "-n"}), HasSubstr("put gradwire run behind sudo, before mpirun"));
  EXPECT_THAT(with({"ssh", "node1"}), HasSubstr("ssh starts what comes after it without LD_PRELOAD"));
  EXPECT_THAT(with({"env", "-i"}), HasSubstr("env -i starts"));
  EXPECT_THAT(with({"sh", "-c", "cd /x; env - ./job"}), HasSubstr("env - starts"));
  EXPECT_THAT(with({"env", "A=1"}), HasSubstr("the job is no MPI job"));
}

TEST_F(Outcome, RanksSayWhatBecameOfThem) {
  SeenRanks seen{.begun = 2, .asked = 2, .hosts = {"a", "b"}, .hosts_of_root = {"elsewhere"}};
  EXPECT_THAT(why(GRADWIRE_PROBE, seen), HasSubstr("rank 0 ran on elsewhere, which does not share /"));
  EXPECT_THAT(why(GRADWIRE_PROBE, seen), HasSubstr("name a file or a directory that all hosts share by --report"));
  seen.hosts_of_root = {transport::tcp::host_name()};
  EXPECT_THAT(why(GRADWIRE_PROBE, seen), HasSubstr("rank 0 called MPI_Init, but not MPI_Finalize"));
  seen.hosts_of_root.clear();
  EXPECT_THAT(why(GRADWIRE_PROBE, seen), HasSubstr("rank 0, which writes it, called MPI_Init without gradwire"));
  EXPECT_THAT(why(GRADWIRE_PROBE, SeenRanks{.begun = 1}), HasSubstr("1 process called MPI_Init with gradwire"));
  EXPECT_THAT(why(GRADWIRE_PROBE, std::nullopt), HasSubstr("or rank 0 ran on a host that does not share"))
      << "with --no-register the reason is not known";
}

// The status of a job that goes on when ranks end is that of its ranks, if the launcher's status says that all is well.
TEST(RanksOutcome, AJobOfWhichNobodyEndedWellFailed) {
  const auto status_of = [](std::map<int, int> ended_as, int status = 0, bool joinable = false, int spares = 0) {
    SeenRanks seen;
    seen.elastic = 4;
    seen.ended_as = std::move(ended_as);
    seen.never_placed = spares;
    return outcome_of_ranks(seen, status, joinable)->status;
  };
  EXPECT_FALSE(outcome_of_ranks(SeenRanks{}, 0, false));
  EXPECT_EQ(status_of({{0, 1}, {81, 1}, {82, 2}}), 0);
  EXPECT_EQ(status_of({{82, 2}}), 82);
  EXPECT_EQ(status_of({{82, 1}, {139, 1}}), 82);
  EXPECT_EQ(status_of({{1, 1}, {81, 2}, {82, 1}}), 82);
  EXPECT_EQ(status_of({{81, 3}}), 81);
  EXPECT_EQ(status_of({{81, 3}, {97, 1}}), 97);
  EXPECT_EQ(status_of({{7, 1}, {81, 3}}), 7);
  EXPECT_EQ(status_of({}), 1);
  EXPECT_EQ(status_of({}, 0, false, 1), 1) << "an unneeded spare says nothing about the job";
  EXPECT_EQ(status_of({}, 0, true), 0) << "joined processes may go on";
  EXPECT_EQ(status_of({{82, 2}}, 0, true), 82);
  EXPECT_EQ(status_of({{0, 4}}, 137), 137) << "the command may have failed after the job";
  EXPECT_EQ(status_of({{82, 4}}, 137), 137);
}

TEST(RanksOutcome, SaysHowManyEndedHow) {
  SeenRanks seen;
  seen.elastic = 6;
  seen.ended_as = {{0, 2}, {81, 1}};
  seen.never_placed = 1;
  EXPECT_EQ(
      outcome_of_ranks(seen, 0, false)->text,
      "of 6 processes 2 ended well, 1 ended with 81 (the others went on without it), nothing was heard of the end "
      "of 2, 1 waited for a place until the end");
}

TEST_F(Outcome, FoldersOfKilledRunsGo) {
  fs::create_directories(folder_);
  ASSERT_EQ(::setenv("TMPDIR", folder_.c_str(), 1), 0);
  fs::create_directories(folder_ / "gradwire-abcdef");  // left by a run that was killed
  std::ofstream(folder_ / "gradwire-abcdef/.lock") << "";
  fs::create_directories(folder_ / "gradwire-ghijkl");  // belongs to another program
  {
    const TemporaryFolder first;
    EXPECT_FALSE(fs::exists(folder_ / "gradwire-abcdef"));
    const TemporaryFolder second;
    EXPECT_TRUE(fs::exists(first.path())) << "its run goes on";
    EXPECT_NE(first.path(), second.path());
  }
  EXPECT_TRUE(fs::exists(folder_ / "gradwire-ghijkl"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  ::unsetenv("TMPDIR");
}

// The kernel says by which name it started this test.
TEST(Preload, WithoutProcTheProgramIsFoundAllTheSame) { EXPECT_EQ(this_program("/no/such/link"), this_program()); }

}  // namespace
}  // namespace gradwire::cli
