// Tests hosts in the arguments of a launcher: they are read, and left out.
#include "cli/named_hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>

#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Command = std::vector<std::string>;
const std::string kJob = GRADWIRE_PROBE;

/// Returns names and slots, as "a:4 b:?".
std::string told(const NamedHosts& named) {
  std::string text;
  for (const NamedHosts::Host& host : named.hosts()) {
    text += (text.empty() ? "" : " ") + host.name + ":" + (host.slots ? std::to_string(*host.slots) : "?");
  }
  return text;
}

std::string in_open_mpi(const Command& command) { return told(NamedHosts(command, 0, Library::open_mpi)); }

class NamedHostsFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& text) const {
    std::ofstream(folder_ / "hosts") << text;
    return (folder_ / "hosts").string();
  }
  std::string copied() const {
    std::ifstream stream(folder_ / "copy");
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gradwire_hosts_" + std::to_string(::getpid()));
};

TEST(NamedHosts, AListSaysHostsAndSlots) {
  EXPECT_EQ(in_open_mpi({"mpirun", "-H", "a:2,b,a", "-np", "2", kJob}), "a:3 b:1");
  EXPECT_EQ(in_open_mpi({"mpirun", "--host", "a:auto,b:2", kJob}), "a:? b:2");
  EXPECT_EQ(told(NamedHosts({"mpiexec", "-hosts", "a:2,b", kJob}, 0, Library::mpich)), "a:2 b:1");
  EXPECT_EQ(in_open_mpi({"mpirun", "-np", "2", kJob}), "");
  EXPECT_EQ(in_open_mpi({"mpirun", "-np", "2", kJob, "-H", "a,b"}), "") << "an argument of the job";
}

// In these cases all hosts stay.
TEST(NamedHosts, WhatIsNotUnderstoodNamesNone) {
  EXPECT_EQ(in_open_mpi({"mpirun", "-H", "a,b", "-np", "1", kJob, ":", "-H", "c", kJob}), "");
  EXPECT_EQ(in_open_mpi({"mpirun", "-H", "a", "-H", "b", kJob}), "");
  EXPECT_EQ(in_open_mpi({"mpirun", "-H", "+n0,+n1", kJob}), "");
  EXPECT_EQ(in_open_mpi({"mpirun", "-H", "[::1],b", kJob}), "");
  EXPECT_EQ(in_open_mpi({"mpirun", "--hostfile", "/no/such/file", kJob}), "");
  EXPECT_EQ(in_open_mpi({"mpirun", "-H"}), "");
}

TEST(NamedHosts, AHostIsLeftOut) {
  const Command command{"mpirun", "-H", "a:2,b,c:2,b", "-np", "5", kJob, "-np", "5"};
  const NamedHosts::Left left = NamedHosts(command, 0, Library::open_mpi).without({"b"}, "/no/such/copy");
  EXPECT_THAT(left.command, ElementsAre("mpirun", "-H", "a:2,c:2", "-np", "4", kJob, "-np", "5"));
  EXPECT_EQ(left.ranks_before, 5);
  EXPECT_EQ(left.ranks, 4);
  EXPECT_EQ(NamedHosts(command, 0, Library::open_mpi).without({}, "").command, command);
}

TEST(NamedHosts, RanksStayWhereSlotsSuffice) {
  const auto ranks = [](const std::string& hosts, const std::string& before) {
    return NamedHosts({"mpirun", "-H", hosts, "-n", before, kJob}, 0, Library::open_mpi).without({"b"}, "").command[4];
  };
  EXPECT_EQ(ranks("a:4,b:4", "4"), "4");
  EXPECT_EQ(ranks("a:4,b:4", "8"), "4");
  EXPECT_EQ(ranks("a:4,b:4", "9"), "9") << "there were more ranks than slots before, too";
  EXPECT_EQ(ranks("a:auto,b:4", "8"), "8") << "the launcher counts the cores";
  EXPECT_EQ(ranks("a:4,b:4", "x"), "x");
}

TEST_F(NamedHostsFile, IsCopiedWithoutTheHost) {
  const std::string file = write("# ours\na slots=2 max_slots=4\n\nb:3 # spare\nc\n");
  const Command command{"mpirun", "--hostfile", file, kJob};
  const NamedHosts named(command, 0, Library::open_mpi);
  EXPECT_EQ(told(named), "a:2 b:3 c:?");
  const NamedHosts::Left left = named.without({"b"}, folder_ / "copy");
  EXPECT_THAT(left.command, ElementsAre("mpirun", "--hostfile", (folder_ / "copy").string(), kJob));
  EXPECT_EQ(copied(), "# ours\na slots=2 max_slots=4\n\nc\n");
  EXPECT_EQ(named.without({}, "").command, command) << "the user's own command stays if all hosts are there";
  try {
    static_cast<void>(named.without({"b"}, "/no/such/copy"));
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the copy /no/such/copy of the host file " + file + " cannot be written"));
  }
}

// The launcher must get the bytes of the pipe. Mutation tried: the pipe is opened like a file; then nothing ends.
TEST_F(NamedHostsFile, APipeIsLeftToTheLauncher) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(in_open_mpi({"mpirun", "--hostfile", (folder_ / "pipe").string(), kJob}), "");
}

TEST_F(NamedHostsFile, AListBesideItChoosesAmongItsHosts) {
  const std::string file = write("a slots=2\nb slots=2\nc slots=2\n");
  const Command command{"mpirun", "-machinefile", file, "-H", "a,b", "-np", "4", kJob};
  const NamedHosts::Left left = NamedHosts(command, 0, Library::open_mpi).without({"b"}, folder_ / "copy");
  EXPECT_THAT(left.command,
              ElementsAre("mpirun", "-machinefile", (folder_ / "copy").string(), "-H", "a", "-np", "4", kJob));
  EXPECT_EQ(copied(), "a slots=2\nc slots=2\n");
}

TEST_F(NamedHostsFile, MpichCountsOneSlotWhereNoneIsSaid) {
  const std::string file = write("a:2\nb\n");
  const NamedHosts named({"mpiexec", "-f", file, "-n", "3", kJob}, 0, Library::mpich);
  EXPECT_EQ(told(named), "a:2 b:1");
  EXPECT_EQ(named.without({"a"}, folder_ / "copy").command[4], "1");
}

// Contents are drawn from a seed. The copy never contains anything that was not in the file.
TEST_F(NamedHostsFile, DamagedFilesAreRead) {
  std::mt19937 random(19);
  for (int i = 0; i < 100; ++i) {
    std::string text = "a slots=2\nb:3\nc\n";
    for (int change = 0; change < 4; ++change) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const NamedHosts named({"mpirun", "--hostfile", write(text), "-np", "4", kJob}, 0, Library::open_mpi);
    const NamedHosts::Left left = named.without({"a"}, folder_ / "copy");
    EXPECT_LE(left.ranks, 4);
    EXPECT_GE(text.size() + 1, copied().size());
  }
}

TEST(NamedHosts, HostsAreAskedAsTheLauncherReachesThem) {
  const auto agent = [](const Command& command, Library library, const std::string& variable = "") {
    return NamedHosts(command, 0, library).agent(variable);
  };
  EXPECT_THAT(agent({"mpirun", kJob}, Library::open_mpi),
              ElementsAre("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"));
  EXPECT_THAT(agent({"mpirun", "--mca", "plm_rsh_agent", "/x/agent -v", kJob}, Library::open_mpi, "other"),
              ElementsAre("/x/agent", "-v"));
  EXPECT_THAT(agent({"mpirun", kJob}, Library::open_mpi, "/usr/bin/ssh -p 22 : rsh"),
              ElementsAre("/usr/bin/ssh", "-p", "22", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"));
  EXPECT_THAT(agent({"mpiexec", "-launcher-exec", "/bin/sh", kJob}, Library::mpich), ElementsAre("/bin/sh"));
}

}  // namespace
}  // namespace gradwire::cli
