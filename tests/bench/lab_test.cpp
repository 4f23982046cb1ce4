// Tests that the lab cleans up: after success, a failing program or a signal. Needs root and network namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "tests/support/run_program.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLab = std::string(GRADWIRE_SOURCE_DIR) + "/bench/lab/lab";

std::string namespaces() { return run_program("ip netns list").output; }

class Lab : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome check = run_program(kLab + " check");
    if (check.status != 0) {
      EXPECT_THAT(check.output, HasSubstr("lab: "));
      GTEST_SKIP() << check.output;
    }
  }
  static std::string command(const std::string& rest) {
    return kLab + " --build " + GRADWIRE_BUILD_DIR + " --measure 0.2 " + rest;
  }
};

TEST_F(Lab, RunsAnMpiProgramAcrossHostsAndCleansUp) {
  // With exec the shell becomes the lab, so that its process id, which is part of every name, is known.
  const Outcome outcome = run_program("echo pid $$; exec " + command("--hosts 3 -- /bin/hostname"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const char* host : {"labhost1", "labhost2", "labhost3"}) {
    EXPECT_THAT(outcome.output, HasSubstr(host));
  }
  EXPECT_THAT(outcome.output, HasSubstr("a two-way TCP stream carries"));
  const std::string pid = outcome.output.substr(4, outcome.output.find('\n') - 4);
  EXPECT_THAT(namespaces(), Not(HasSubstr("gwlab" + pid + "-")));
}

// Ranks of one host share a node, ranks of different hosts do not: the benchmark refuses a hierarchy without nodes.
TEST_F(Lab, SeveralRanksOnEachHostMakeTwoTiers) {
  const std::string bench =
      " -- bench_all_reduce --codec int8 --algorithm hierarchical --max-bytes 1MiB --iterations 1 --warmup 1";
  const Outcome tiered = run_program(command("--ranks-per-host 2" + bench));
  EXPECT_EQ(tiered.status, 0) << tiered.output;
  EXPECT_THAT(tiered.output, HasSubstr("int8, intra bf16  hierarchical"));
  const Outcome flat = run_program(command(bench));
  EXPECT_NE(flat.status, 0);
  EXPECT_THAT(flat.output, HasSubstr("hierarchical is two_shot here: each node has one rank; see --ranks-per-node"));
}

// The test checks only the rates that the kernel reports, so that nothing depends on speed.
TEST_F(Lab, ChangesTheLinksAsTheScheduleSays) {
  const std::string until = std::to_string(600000 + getpid() % 100000) + "ms";  // differs between runs of this test
  const std::string schedule = "200Mbit/s until 100ms, 300Mbit/s until " + until + ", 1Gbit/s";
  const Outcome outcome =
      run_program(command("--link '" + schedule + "' -- /bin/sh -c 'sleep 1.5; tc qdisc show dev lab0'"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("2 hosts at " + schedule));
  EXPECT_THAT(outcome.output, HasSubstr("rate 300Mbit"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("rate 200Mbit")));
  EXPECT_EQ(run_program("pgrep -f '[l]ink_player play .* until " + until + "'").output, "");  // it ended with the run
}

TEST_F(Lab, CleansUpAfterAFailingProgram) {
  const Outcome outcome = run_program("echo pid $$; exec " + command("-- /bin/false"));
  EXPECT_NE(outcome.status, 0);
  const std::string pid = outcome.output.substr(4, outcome.output.find('\n') - 4);
  EXPECT_THAT(namespaces(), Not(HasSubstr("gwlab" + pid + "-")));
}

TEST_F(Lab, CleansUpAfterASignal) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string line = "exec " + command("-- /bin/sleep 60 >/dev/null 2>&1");
    execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  const std::string name = "gwlab" + std::to_string(child) + "-1";
  const auto sleeping = [&] { return run_program("ip netns pids " + name).output.find_first_of("0123456789"); };
  // Waits until the link is measured and mpirun runs inside the first host.
  for (int i = 0; i < 100 && (namespaces().find(name) == std::string::npos || sleeping() == std::string::npos); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_THAT(namespaces(), HasSubstr(name));
  // The hosts of a live run survive `clean`.
  EXPECT_EQ(run_program(kLab + " clean").status, 0);
  EXPECT_THAT(namespaces(), HasSubstr(name));
  kill(child, SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 143) << status;
  EXPECT_THAT(namespaces(), Not(HasSubstr("gwlab" + std::to_string(child) + "-")));
}

TEST_F(Lab, CleanRemovesWhatADeadRunLeft) {
  const pid_t dead = fork();
  if (dead == 0) {
    _exit(0);
  }
  waitpid(dead, nullptr, 0);
  const std::string name = "gwlab" + std::to_string(dead) + "-1";
  ASSERT_EQ(run_program("ip netns add " + name).status, 0);
  EXPECT_EQ(run_program(kLab + " clean").status, 0);
  EXPECT_THAT(namespaces(), Not(HasSubstr(name)));
}

TEST_F(Lab, BadArgumentsAreNamed) {
  EXPECT_THAT(run_program(kLab + " --hosts 1").output, HasSubstr("--hosts 1"));
  EXPECT_THAT(run_program(kLab + " --rate fast").output, HasSubstr("--rate fast"));
  EXPECT_THAT(run_program(kLab + " --rate 1Gbit/s,far").output, HasSubstr("expected a latency such as 5ms"));
  EXPECT_THAT(run_program(kLab + " --speed 3").output, HasSubstr("unknown option --speed"));
  EXPECT_THAT(run_program(command("--link '1Gbit/s until 30s'")).output, HasSubstr("phase 1 (1Gbit/s) is the last"));
  EXPECT_THAT(run_program(command("--link 1Gbit/s,1ms")).output, HasSubstr("no latency to set"));
}

}  // namespace
}  // namespace gradwire::test
