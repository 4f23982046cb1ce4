// Tests the tables of policy files about elastic jobs, devices and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bad_policy.hpp"
#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire {
namespace {

using test::expect_bad;
using ::testing::HasSubstr;
using Bad = test::BadPolicy;

// Expects an error with the second text where the table has the line of the first.
void expect_lines_refused(const std::string& table, const std::vector<std::pair<std::string, std::string>>& lines) {
  for (const auto& [line, wanted] : lines) {
    const Error error = test::error_of([&] { static_cast<void>(Policy::parse("[" + table + "]\n" + line + "\n")); });
    EXPECT_THAT(error.what(), HasSubstr(wanted)) << line;
  }
}

TEST(Policy, Elastic) {
  const Policy policy = Policy::parse(
      "[elastic]\nsuspect = \"2s\"\nmin_ranks = 3\nreplicate = \"10 steps\"\nreplicate_as = \"exact\"\n"
      "spares = 2\nexpel_slower_than = 2.5\n");
  ASSERT_TRUE(policy.elastic);
  EXPECT_EQ(*policy.elastic, (Policy::Elastic{std::chrono::milliseconds(2000), 3, 10, true, 2, 2.5}));
  EXPECT_EQ(Policy::parse("[elastic]\nexpel_slower_than = 3\n").elastic->expel_slower_than, 3);
  EXPECT_TRUE(Policy::parse("[elastic]\ntrust_resets = true\n").elastic->trust_resets);
  EXPECT_FALSE(policy.elastic->trust_resets);
  EXPECT_FALSE(policy.elastic->replicate_packed);
  const Policy::Elastic packed = *Policy::parse("[elastic]\nreplicate_as = \"bf16+zstd\"\n").elastic;
  EXPECT_TRUE(packed.replicate_packed && !packed.replicate_exact);
  EXPECT_EQ(Policy::parse("[elastic]\nreplicate = \"1 step\"\n").elastic->replicate, 1U);
  EXPECT_FALSE(Policy().elastic);
  expect_lines_refused(
      "elastic", {{"suspect = \"10ms\"", "policy:2:11: suspect = \"10ms\" is not from 1s to 10min"},
                  {"suspect = 5", "policy:2:11: suspect"},
                  {"min_ranks = 0", "policy:2:13: min_ranks"},
                  {"spares = -1", "policy:2:10: spares"},
                  {"trust_resets = 1", "policy:2:16: trust_resets"},
                  {"expel_slower_than = 1.2", "policy:2:21: expel_slower_than = 1.2 is not from 1.5 to 1000"},
                  {"expel_slower_than = nan", "is not from 1.5 to 1000"},
                  {"expel_slower_than = \"3\"", "policy:2:21: expel_slower_than"},
                  {"replicate = \"10\"", "policy:2:13: replicate = \"10\" is no number of steps; write \"10 steps\""},
                  {"replicate = \"0 steps\"", "is no number of steps"},
                  {"replicate = \"-1 steps\"", "is no number of steps"},
                  {"replicate_as = \"int8\"",
                   "unknown replicate_as \"int8\"; write \"bf16\" or \"exact\", with or without \"+zstd\""},
                  {"replicate_as = \"int8+zstd\"", "unknown replicate_as \"int8+zstd\""},
                  {"suspekt = \"5s\"", "suspekt"}});
}

TEST(Policy, SaveAs) {
  EXPECT_FALSE(Policy().save_packed);
  EXPECT_FALSE(Policy::parse("save_as = \"exact\"\n").save_packed);
  EXPECT_TRUE(Policy::parse("save_as = \"exact+zstd\"\n").save_packed);
  expect_bad({"save_as = \"bf16\"\n", "1:11", "unknown save_as \"bf16\"; write \"exact\" or \"exact+zstd\""},
             ErrorCode::invalid_argument);
}

TEST(Policy, Security) {
  const Policy policy = Policy::parse("[security]\nkey = \"file:/home/me/job.key\"\nlock_memory = true\n");
  EXPECT_EQ(policy.security, (Policy::Security{"file:/home/me/job.key", true, false}));
  EXPECT_TRUE(Policy::parse("[security]\nno_dump = true\n").security.no_dump);
  EXPECT_EQ(Policy::parse("").security, Policy::Security());
  expect_lines_refused("security", {{"key = \"/home/me/job.key\"", "policy:2:7: key is not \"file:PATH\""},
                                    {"key = \"5d902d6b3db6b0b663bf99cf33687598\"", "never the secret itself"},
                                    {"key = 5", "policy:2:7: key"},
                                    {"lock_memory = 1", "policy:2:15: lock_memory"},
                                    {"no_dump = 1", "policy:2:11: no_dump"},
                                    {"keys = \"file:/a\"", "did you mean \"key\"?"}});
}

TEST(Policy, Device) {
  EXPECT_EQ(Policy().device, (Policy::Device{.blocks = std::nullopt, .high_priority = true}));
  EXPECT_EQ(Policy::parse("[device]\nblocks = 64\npriority = \"normal\"\njoin = \"8MiB\"\n").device,
            (Policy::Device{.blocks = 64, .high_priority = false, .join_bytes = 8ULL << 20}));
  for (const Bad& bad : std::vector<Bad>{
           {"[device]\nblocks = 0", "2:10", "blocks"},
           {"[device]\nblocks = 65537", "2:10",
            "blocks is 65537; write the most blocks of 256 threads of each kernel, 1 to 65536"},
           {"[device]\npriority = \"low\"", "2:12", "unknown priority \"low\"; write \"high\" or \"normal\""},
           {"[device]\nblock = 1", "2:1", "unknown key \"block\" in [device]; did you mean \"blocks\"?"}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
}

TEST(Policy, RolesAndMemoryOfDevices) {
  const Policy policy = Policy::parse(
      "[memory]\ndevice_residuals = \"512MiB\"\n[defaults]\nroles = \"all\"\n[[rule]]\ncommunicator_name = \"tp*\"\n"
      "roles = \"gradients\"\n[[rule]]\ndtype = \"bf16\"\n");
  EXPECT_EQ(policy.memory.device_residuals, 512U << 20);
  EXPECT_EQ(policy.defaults.roles, Roles::all);
  EXPECT_EQ(policy.rules.at(0).match, (RuleMatch{.communicator_name = "tp*"}));
  EXPECT_EQ(policy.rules.at(0).policy.roles, Roles::gradients);
  EXPECT_EQ(policy.rules.at(1).policy.roles, Roles::all) << "taken over from the defaults";
  EXPECT_EQ(Policy::parse("[defaults]\nroles = \"gradients\"").defaults, Policy().defaults);
  EXPECT_EQ(Policy().memory.device_residuals, 2ULL << 30);
  EXPECT_FALSE(Policy::parse("[memory]\nbind = \"off\"\n").memory.bind);
  EXPECT_TRUE(Policy::parse("[memory]\nbind = \"auto\"\n").memory.bind);
  EXPECT_TRUE(Policy().memory.bind);
  EXPECT_EQ(Policy().memory.limit, std::nullopt);
  const Policy::Memory memory = Policy::parse(
                                    "[memory]\nlimit = \"4GiB\"\nhuge_pages = \"hugetlbfs\"\nmerge = \"at_once\"\n"
                                    "trim_above = \"1MiB\"\ntrim_after = \"2s\"\ncompact_free = \"50%\"\n"
                                    "compact_failures = 5\ncompact_every = \"1min\"\n")
                                    .memory;
  EXPECT_EQ(memory, (Policy::Memory{.limit = 4ULL << 30,
                                    .huge_pages = Policy::Memory::HugePages::hugetlbfs,
                                    .merges_lazily = false,
                                    .trim_above = 1 << 20,
                                    .trim_after = std::chrono::seconds(2),
                                    .compact_free = 0.5,
                                    .compact_failures = 5,
                                    .compact_every = std::chrono::seconds(60)}));
  for (const Bad& bad : std::vector<Bad>{
           {"[defaults]\nroles = \"some\"", "2:9", "unknown roles \"some\"; write \"gradients\" or \"all\""},
           {"[defaults]\nroles = 1", "2:9", "roles must be \"gradients\" or \"all\", not an integer"},
           {"roles = \"all\"", "1:1",
            "unknown key \"roles\" at the top of the file; write it in [defaults] or a [[rule]]"},
           {"[memory]\nlimit = \"1MiB\"", "2:9", "limit"},
           {"[memory]\nhuge_pages = \"large\"", "2:14", "unknown huge_pages \"large\"; write \"madvise\""},
           {"[memory]\nmerge = \"never\"", "2:9", "unknown merge \"never\"; write \"lazy\" or \"at_once\""},
           {"[memory]\ntrim_after = \"90min\"", "2:14", "trim_after = \"90min\" is not from 1ms to 60min"},
           {"[memory]\ncompact_failures = 0", "2:20", "compact_failures"},
           {"[memory]\ndevice_residuals = true", "2:20", "device_residuals must be a size such as \"64KiB\""},
           {"[memory]\nbind = \"on\"", "2:8", "unknown bind \"on\"; write \"auto\" or \"off\""},
           {"[memory]\ndevice_residual = 1", "2:1",
            "unknown key \"device_residual\" in [memory]; did you mean \"device_residuals\"?"},
           {"[bucket]\ndevice_residuals = 1", "2:1",
            "unknown key \"device_residuals\" in [bucket]; write it in [memory]"},
           {"memory = 1", "1:10", "memory must be a table; write [memory] on a line of its own"},
           {"[[rule]]\ncommunicator_name = 1", "2:21",
            "communicator_name must be a string: a glob over names of NCCL's communicators"},
           {"[[rule]]\ncommunicator_name = \"[\"", "2:21", "bad glob \"[\""}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace gradwire
