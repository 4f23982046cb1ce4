// What the system leaves: cgroups of both versions, groups around them, the machine, and files that are not there.
#include "memory/memory_left.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/scratch_folder.hpp"

namespace gradwire::memory {
namespace {

using ::testing::HasSubstr;

class MemoryLeftTest : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] MemoryLeft left() const { return memory_left(folder_.path()); }

  test::ScratchFolder folder_;
};

TEST_F(MemoryLeftTest, WithoutFilesThereIsNoLimit) { EXPECT_EQ(left().bytes, ~std::uint64_t{0}); }

TEST_F(MemoryLeftTest, AMachineLeavesWhatItSaysIsAvailable) {
  write("proc/meminfo", "MemTotal:  8000 kB\nMemFree:  100 kB\nMemAvailable:    5000 kB\n");
  EXPECT_EQ(left().bytes, 5000U * 1024);
  EXPECT_THAT(left().source, HasSubstr("machine"));
}

TEST_F(MemoryLeftTest, Version2TakesTheLeastOfAGroupAndThoseAroundIt) {
  write("proc/meminfo", "MemAvailable: 5000 kB\n");
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/one/memory.current", "1000\n");
  EXPECT_EQ(left().bytes, 5000U * 1024);
  write("sys/fs/cgroup/jobs/memory.max", "100000\n");
  write("sys/fs/cgroup/jobs/memory.current", "60000\n");
  EXPECT_EQ(left().bytes, 40000U);
  EXPECT_THAT(left().source, HasSubstr("/jobs"));
  write("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 15000\nactive_file 7\n");
  EXPECT_EQ(left().bytes, 55007U) << "a cache of files can be dropped";
  write("sys/fs/cgroup/jobs/one/memory.max", "5000\n");
  EXPECT_EQ(left().bytes, 4000U);
  write("sys/fs/cgroup/jobs/one/memory.current", "7000\n");
  EXPECT_EQ(left().bytes, 0U);
}

TEST_F(MemoryLeftTest, AContainerMaySeeItsGroupOnlyAsTheRoot) {
  write("proc/self/cgroup", "0::/not/mounted/here\n");
  write("sys/fs/cgroup/memory.max", "9000\n");
  write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(left().bytes, 8000U);
}

TEST_F(MemoryLeftTest, Version1HasAControllerOfItsOwn) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/process\n0::/\n");
  write("sys/fs/cgroup/memory/process/memory.limit_in_bytes", "50000\n");
  write("sys/fs/cgroup/memory/process/memory.usage_in_bytes", "20000\n");
  write("sys/fs/cgroup/memory/process/memory.stat", "cache 9\ntotal_inactive_file 4000\n");
  EXPECT_EQ(left().bytes, 34000U);
  write("sys/fs/cgroup/memory/process/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(left().bytes, ~std::uint64_t{0}) << "the number that stands for no limit";
}

TEST_F(MemoryLeftTest, DamagedFilesSayNothing) {
  write("proc/meminfo", "MemAvailable\nMemAvailable: lots kB\n");
  write("proc/self/cgroup", "rubbish\n0:\n");
  EXPECT_EQ(left().bytes, ~std::uint64_t{0});
}

}  // namespace
}  // namespace gradwire::memory
