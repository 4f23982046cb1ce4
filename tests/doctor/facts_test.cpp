// Tests the reading of /proc and /sys.
#include "plugins/mpi_doctor/facts.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "doctor/cluster.hpp"

namespace gradwire::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DoctorFacts, ReadsListsOfCores) {
  EXPECT_THAT(parse_cpu_list("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("x,3-,1"), ElementsAre(1));
  EXPECT_THAT(parse_cpu_list("0-999999999999"), IsEmpty());
  EXPECT_EQ(format_cpu_list({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10,11");
  EXPECT_EQ(format_cpu_list({}), "");
}

TEST(DoctorFacts, ReadsFilesOfTheKernel) {
  EXPECT_EQ(parse_choice("always [madvise] never\n"), "madvise");
  EXPECT_EQ(parse_choice("always"), "");
  const std::string memory = "MemTotal:       131072 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n";
  EXPECT_EQ(parse_memory(memory, "MemTotal"), 131072U * 1024);
  EXPECT_EQ(parse_memory(memory, "MemAvailable"), 1024U * 1024);
  EXPECT_EQ(parse_memory(memory, "Available"), 0U);
  EXPECT_EQ(parse_field("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n", "Cpus_allowed_list"), "0-7");
  EXPECT_EQ(parse_largest_buffer("4096\t131072\t6291456\n"), 6291456U);
  EXPECT_EQ(parse_largest_buffer("4096 131072"), 0U);
}

/// A folder that stands for "/".
class DoctorRoot : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void add_interface(const std::string& name, const std::string& state, int speed) const {
    const std::string folder = "sys/class/net/" + name + "/";
    write(folder + "operstate", state + "\n");
    write(folder + "mtu", "9000\n");
    write(folder + "speed", std::to_string(speed) + "\n");
    write(folder + "carrier", "1\n");
  }

  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("gradwire_doctor_test_" + std::to_string(::getpid()));
};

TEST_F(DoctorRoot, ReadsAHost) {
  write("sys/devices/system/cpu/online", "0-3\n");
  write("proc/self/status", "Cpus_allowed_list:\t1,2\n");
  write("sys/devices/system/node/node0/cpulist", "0,1\n");
  write("sys/devices/system/node/node1/cpulist", "2,3\n");
  write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  write("proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
  write("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304\n");
  write("proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456\n");
  add_interface("eth0", "up", 25000);
  write("sys/class/net/eth0/device/vendor", "x");
  add_interface("ib0", "unknown", -1);
  add_interface("eth1", "down", 1000);
  add_interface("docker0", "up", 1000);
  add_interface("lo", "unknown", 0);
  std::filesystem::create_directories(root_ / "dev/shm");
  const Facts facts = read_facts({.build = "Release", .preloads = {}}, root_);
  EXPECT_THAT(facts.errors, IsEmpty());
  EXPECT_EQ(facts.build, "Release");
  EXPECT_THAT(facts.cores, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(facts.mask, ElementsAre(1, 2));
  EXPECT_THAT(facts.numa_nodes, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(facts.huge_pages, "always");
  EXPECT_EQ(facts.memory_available, 1024U * 1024);
  EXPECT_GT(facts.shm, 0U);
  EXPECT_EQ(facts.tcp_send, 4194304U);
  EXPECT_EQ(facts.tcp_receive, 6291456U);
  ASSERT_EQ(facts.interfaces.size(), 2U);
  EXPECT_EQ(facts.interfaces[0].name, "eth0");
  EXPECT_EQ(facts.interfaces[0].mtu, 9000);
  EXPECT_EQ(facts.interfaces[0].megabits, 25000);
  EXPECT_TRUE(facts.interfaces[0].physical);
  EXPECT_EQ(facts.interfaces[1].name, "ib0");
  EXPECT_EQ(facts.interfaces[1].megabits, 0);
}

TEST(DoctorFacts, ACpuLimitIsATimeOverAPeriod) {
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
  for (const char* none : {"max 100000\n", "", "100000", "-1 100000", "100000 0", "100000 -5", "x y", "1x 2"}) {
    EXPECT_EQ(parse_cpu_max(none), 0) << none;
  }
}

TEST_F(DoctorRoot, ReadsTheLeastCpuLimitOnTheWayUp) {
  EXPECT_EQ(read_cpu_limit(root_).cores, 0) << "there are no control groups";
  write("proc/self/cgroup", "0::/slurm/job/step\n");
  write("sys/fs/cgroup/slurm/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(read_cpu_limit(root_).cores, 0);
  write("sys/fs/cgroup/slurm/job/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n");
  EXPECT_EQ(read_cpu_limit(root_).cores, 3);
  EXPECT_EQ(read_cpu_limit(root_).group, "/slurm/job");
  write("proc/self/cgroup", "0::/../../a name of the host's\n");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(read_cpu_limit(root_).cores, 0.5) << "a container has this limit";
  EXPECT_EQ(read_facts({}, root_).cpu.group, "/");
}

TEST_F(DoctorRoot, ReadsCpuLimitsOfTheFirstControlGroups) {
  write("proc/self/cgroup", "3:cpuset:/docker/1\n2:cpu,cpuacct:/docker/1\n1:name=systemd:/x\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu_limit(root_).cores, 2);
}

TEST_F(DoctorRoot, WhatIsMissingEndsNothing) {
  const Facts facts = read_facts({.build = "", .preloads = {{"Open MPI", (root_ / "none.so").string(), ""}}}, root_);
  EXPECT_THAT(facts.cores, IsEmpty());
  EXPECT_EQ(facts.memory, 0U);
  ASSERT_EQ(facts.errors.size(), 2U);
  EXPECT_THAT(facts.errors[0], HasSubstr("/dev/shm"));
  EXPECT_THAT(facts.errors[1], HasSubstr("none.so"));
}

TEST_F(DoctorRoot, LibrariesThatDifferHaveOtherFingerprints) {
  write("a.so", "one");
  write("b.so", "two");
  const auto read = [&](const std::string& name) {
    const Facts facts = read_facts({.build = "", .preloads = {{"Open MPI", (root_ / name).string(), ""}}}, "/");
    return facts.preloads.at(0).fingerprint;
  };
  EXPECT_NE(read("a.so"), "");
  EXPECT_EQ(read("a.so"), read("a.so"));
  EXPECT_NE(read("a.so"), read("b.so"));
}

TEST(DoctorFacts, TravelAsJson) {
  Facts sent = healthy_rank(3, 1, 1);
  sent.variables["GRADWIRE_LOG"] = "\xff\"";
  sent.errors = {"an error"};
  sent.cpu = {2.5, "/job"};
  const Facts got = facts_from_json(to_json(sent));
  sent.variables["GRADWIRE_LOG"] = "\xef\xbf\xbd\"";  // JSON has this for an invalid byte
  EXPECT_EQ(to_json(got), to_json(sent));
  const Facts older = facts_from_json(R"({"rank": 2, "host": "b"})");
  EXPECT_EQ(older.host, "b");
  EXPECT_EQ(older.version, "");
  EXPECT_ANY_THROW(static_cast<void>(facts_from_json("{")));
}

}  // namespace
}  // namespace gradwire::doctor
