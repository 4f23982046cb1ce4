// Tests the reading of a process's environment, and of files of choices.
#include "drop_in/configuration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "memory/process_pool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::drop_in {
namespace {

using ::testing::HasSubstr;

// An environment variable that is set only for this test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Configuration, WhatIsWrongDisables) {
  struct Case {
    const char* name;
    const char* value;
    const char* expected;
  };
  for (const Case& c :
       {Case{"GRADWIRE_DISABLE", "1", "GRADWIRE_DISABLE=1"}, Case{"GRADWIRE_DISABLE", "yes", "write one of 0 | 1"},
        Case{"GRADWIRE_POLICY", "/no/such/policy.toml", "/no/such/policy.toml"},
        Case{"GRADWIRE_TIMEOUT", "soon", "soon"}}) {
    setenv(c.name, c.value, 1);
    const Configuration configuration = Configuration::read(true);
    unsetenv(c.name);
    EXPECT_NE(configuration.disabled.find(c.expected), std::string::npos) << configuration.disabled;
    EXPECT_EQ(configuration.mode, Mode::disabled) << c.name;
  }
  EXPECT_TRUE(Configuration::read(true).disabled.empty());
  setenv("GRADWIRE_TIMEOUT", "2s", 1);
  EXPECT_EQ(Configuration::read(true).timeout, std::chrono::seconds(2));
  EXPECT_EQ(Configuration::read(true).longest_wait(), std::chrono::seconds(2));
  unsetenv("GRADWIRE_TIMEOUT");
  EXPECT_FALSE(Configuration::read(true).timeout) << "a call waits as long as the library would";
  EXPECT_GT(Configuration::read(true).longest_wait(), std::chrono::hours(24 * 365));
}

// The pool of host memory follows the policy's file; what an operator says counts where it is less.
TEST(Configuration, MemoryOfThePolicyIsThatOfThePool) {
  const test::ScratchFolder folder;
  const std::string file = folder.path() / "policy.toml";
  std::ofstream(file) << "[memory]\nlimit = \"1GiB\"\ntrim_above = \"3MiB\"\nbind = \"off\"\n";
  for (const bool measures : {true, false}) {
    {
      const Variable policy("GRADWIRE_POLICY", file);
      EXPECT_TRUE(Configuration::read(measures).disabled.empty());
    }
    EXPECT_EQ(memory::page_pool().options().limit.bytes, 1U << 30U);
    EXPECT_EQ(memory::page_pool().options().trim_above, 3U << 20U);
    memory::configure_page_pool({}, std::nullopt, 1);
  }
}

// Calls are lossy only on request.
TEST(Configuration, OnlyACodecOrAPolicyThatIsNamedCompresses) {
  for (const bool measures : {true, false}) {
    EXPECT_EQ(Configuration::read(measures).mode, Mode::observing);
    {
      const Variable codec("GRADWIRE_CODEC", "int8");
      EXPECT_EQ(Configuration::read(measures).mode, Mode::compressing);
      const Variable dry("GRADWIRE_DRY_RUN", "1");
      const Configuration counting = Configuration::read(measures);
      EXPECT_EQ(counting.mode, Mode::observing) << "a dry run changes no bit";
      EXPECT_TRUE(counting.dry_run);
      EXPECT_EQ(counting.planner.policy().defaults.codec.to_string(), "int8") << "it counts what int8 would send";
      const Variable disabled("GRADWIRE_DISABLE", "1");
      EXPECT_EQ(Configuration::read(measures).mode, Mode::disabled);
    }
    for (const char* name : {"GRADWIRE_F64", "GRADWIRE_DRY_RUN"}) {
      const Variable alone(name, "1");
      EXPECT_EQ(Configuration::read(measures).mode, Mode::observing) << name << " names no codec";
    }
  }
  const std::string file =
      (std::filesystem::temp_directory_path() / ("gradwire_policy_" + std::to_string(::getpid()) + ".toml")).string();
  std::ofstream(file) << "version = 1\n[defaults]\ncodec = \"int4\"\n";
  const Variable policy("GRADWIRE_POLICY", file);
  EXPECT_EQ(Configuration::read(true).mode, Mode::compressing);
  std::filesystem::remove(file);
}

TEST(Configuration, OptionsBesideACodecAreItsPolicy) {
  const Variable codec("GRADWIRE_CODEC", "int4");
  {
    const Policy plain = Configuration::read(true).planner.policy();
    EXPECT_EQ(plain.defaults.error_feedback, ErrorFeedback::automatic);
    EXPECT_FALSE(plain.defaults.max_error);
    EXPECT_TRUE(plain.rules.empty());
  }
  const std::string before = Configuration::read(true).policy_fingerprint();
  const Variable feedback("GRADWIRE_ERROR_FEEDBACK", "off");
  EXPECT_EQ(Configuration::read(true).planner.policy().defaults.error_feedback, ErrorFeedback::off);
  EXPECT_NE(Configuration::read(true).policy_fingerprint(), before) << "ranks that differ in it would not notice";
  const Variable bound("GRADWIRE_MAX_ERROR", "2%");
  const Variable f64("GRADWIRE_F64", "1");
  const Policy policy = Configuration::read(true).planner.policy();
  EXPECT_DOUBLE_EQ(policy.defaults.max_error.value_or(0), 0.02);
  ASSERT_EQ(policy.rules.size(), 1U);
  EXPECT_EQ(policy.rules[0].match.dtype, DType::f64);
  EXPECT_EQ(policy.rules[0].policy, policy.defaults);
  const Variable wrong("GRADWIRE_MAX_ERROR", "little");
  EXPECT_THAT(Configuration::read(true).disabled, HasSubstr("GRADWIRE_MAX_ERROR"));
}

TEST(Configuration, PackedFramesAreForHostMemory) {
  const Variable codec("GRADWIRE_CODEC", "exact+zstd");
  EXPECT_EQ(Configuration::read(true).mode, Mode::compressing);
  const Configuration nccl = Configuration::read(false);
  EXPECT_EQ(nccl.mode, Mode::disabled);
  EXPECT_THAT(nccl.disabled, HasSubstr("GRADWIRE_CODEC=exact+zstd: exact+zstd packs frames on the cores of hosts"));
}

TEST(Configuration, APolicySaysItsOptionsItself) {
  const Variable policy("GRADWIRE_POLICY", "some.toml");
  const auto refused = [](const char* name, const char* value) {
    const Variable variable(name, value);
    return Configuration::read(true).disabled;
  };
  EXPECT_THAT(refused("GRADWIRE_ERROR_FEEDBACK", "off"), HasSubstr("write error_feedback in the policy"));
  EXPECT_THAT(refused("GRADWIRE_MAX_ERROR", "1%"), HasSubstr("write max_error in the policy"));
  EXPECT_THAT(refused("GRADWIRE_F64", "1"), HasSubstr("write a rule with dtype = \"f64\" in the policy"));
  EXPECT_THAT(refused("GRADWIRE_F64", "0"), HasSubstr("some.toml")) << "the error does not name the file";
  EXPECT_THAT(refused("GRADWIRE_CODEC", "auto"), HasSubstr("GRADWIRE_POLICY and GRADWIRE_CODEC are both set"));
}

TEST(Configuration, RanksAgreeOnlyWhereAllDoTheSame) {
  const auto settings = [](Mode mode, const char* codec) {
    Configuration configuration;
    configuration.mode = mode;
    configuration.disabled = mode == Mode::disabled ? "GRADWIRE_DISABLE=1" : "";
    configuration.planner = plan::CallPlanner(Policy::uniform(codec));
    return RankSettings::of(configuration);
  };
  const RankSettings int8 = settings(Mode::compressing, "int8");
  const RankSettings observing = settings(Mode::observing, "int8");
  const RankSettings disabled = settings(Mode::disabled, "int8");
  const auto mode_of = [](const std::vector<RankSettings>& all) { return agree(all).mode; };
  EXPECT_EQ(mode_of({int8, int8}), Mode::compressing);
  EXPECT_EQ(mode_of({observing, observing}), Mode::observing);
  EXPECT_EQ(mode_of({int8, disabled}), Mode::disabled);
  EXPECT_EQ(mode_of({observing, disabled}), Mode::disabled);
  EXPECT_THAT(agree(std::vector{observing, disabled}).warning(), HasSubstr("disabled on rank 1 (GRADWIRE_DISABLE=1)"));
  EXPECT_EQ(mode_of({int8, observing}), Mode::disabled) << "otherwise one rank would send unexpected messages";
  EXPECT_THAT(agree(std::vector{int8, observing}).warning(), HasSubstr("rank 1 only observes"));
  EXPECT_EQ(mode_of({int8, settings(Mode::compressing, "int4")}), Mode::disabled);
  EXPECT_TRUE(agree(std::vector{int8, settings(Mode::compressing, "int4")}).ranks_differ);
  EXPECT_EQ(mode_of({}), Mode::disabled);
}

TEST(Configuration, TheCodecOfAllCalls) {
  EXPECT_TRUE(Configuration::read(true).planner.only_automatic());
  EXPECT_EQ(Configuration::read(true).planner.floor(), 4096U);
  EXPECT_EQ(Configuration::read(true).planner.policy().source, "built-in");
  EXPECT_FALSE(Configuration::read(false).planner.is_auto());
  EXPECT_EQ(Configuration::read(false).planner.floor(), 65536U);
  {
    const Variable codec("GRADWIRE_CODEC", "int4");
    const Configuration configuration = Configuration::read(true);
    EXPECT_EQ(configuration.disabled, "");
    EXPECT_EQ(configuration.planner.policy().defaults.codec.to_string(), "int4");
    EXPECT_EQ(configuration.planner.policy().source, "GRADWIRE_CODEC=int4");
    EXPECT_EQ(configuration.planner.floor(), 65536U);
  }
  {
    const Variable codec("GRADWIRE_CODEC", "auto");
    EXPECT_TRUE(Configuration::read(true).planner.only_automatic());
    EXPECT_TRUE(Configuration::read(false).planner.only_automatic()) << "over NCCL, too";
    const Variable choices("GRADWIRE_CHOICES", "/no/such/file");
    unsetenv("PMIX_RANK");
    EXPECT_THAT(Configuration::read(false).disabled, HasSubstr("files of their own, by their numbers; set RANK"));
    const Variable number("RANK", "12");
    EXPECT_EQ(Configuration::read(false).recording, "/no/such/file.nccl-12");
    EXPECT_EQ(Configuration::read(false).number_in_job, 12U);
    EXPECT_EQ(Configuration::read(true).recording, "/no/such/file");
  }
  {
    const Variable codec("GRADWIRE_CODEC", "int9");
    EXPECT_THAT(Configuration::read(true).disabled, HasSubstr("GRADWIRE_CODEC is \"int9\"; write auto, int8"));
  }
  const Variable codec("GRADWIRE_CODEC", "int8");
  const Variable policy("GRADWIRE_POLICY", "some.toml");
  EXPECT_THAT(Configuration::read(true).disabled, HasSubstr("GRADWIRE_POLICY and GRADWIRE_CODEC are both set"));
}

ChoicesOfJob some_choices() {
  const ChoiceClass what{.function = Function::mpi_allreduce, .dtype = DType::f32, .rule = 2, .size = 20};
  const ChoiceClass other{.function = Function::mpi_reduce_scatter, .dtype = DType::f64, .rule = 0, .size = 12};
  return {
      {{.ranks = ~0ULL, .size = 4, .first = 1, .number = 3}, {{what, {{0, 0}, {7, 1}, {900, 0}}}, {other, {{0, 2}}}}},
      {{.ranks = 5, .size = 2, .first = 0, .number = 0}, {}}};
}

TEST(ChoiceFile, KeepsAllThatIsInIt) {
  const std::string text = choices_to_text(some_choices(), "policy");
  EXPECT_EQ(choices_from_text(text, "policy"), some_choices());
}

TEST(ChoiceFile, SaysWhatIsWrong) {
  const std::string text = choices_to_text(some_choices(), "policy");
  const auto wrong = [](const std::string& damaged) -> std::string {
    try {
      (void)choices_from_text(damaged, "policy");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  const auto with = [&](const std::string& old, const std::string& by) {
    std::string damaged = text;
    damaged.replace(damaged.find(old), old.size(), by);
    return wrong(damaged);
  };
  EXPECT_THAT(wrong(choices_to_text(some_choices(), "another")), HasSubstr("recorded under another policy"));
  EXPECT_THAT(wrong("no JSON"), HasSubstr("it is no file of choices"));
  EXPECT_THAT(wrong("{}"), HasSubstr("it is no file of choices"));
  EXPECT_THAT(with("MPI_Allreduce", "MPI_Allwrong"), HasSubstr("\"MPI_Allwrong\" is no function"));
  EXPECT_THAT(with("f32", "f33"), HasSubstr("\"f33\" is no dtype"));
  EXPECT_THAT(with("\"size\": 20", "\"size\": 200"), HasSubstr("size must be a whole number up to 63"));
  EXPECT_THAT(with("900", "6"), HasSubstr("the calls of a class must rise"));
  EXPECT_THAT(with("900", "-6"), HasSubstr("call must be a whole number"));
}

TEST(Configuration, FollowsAFileOfChoicesThatIsThere) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("gradwire_choices_" + std::to_string(::getpid()))).string();
  const Variable variable("GRADWIRE_CHOICES", file);
  const Configuration recording = Configuration::read(true);
  EXPECT_EQ(recording.recording, file);
  EXPECT_FALSE(recording.script);
  EXPECT_FALSE(Configuration::read(false).recording) << "nothing is chosen";
  std::ofstream(file) << choices_to_text(some_choices(), recording.policy_fingerprint());
  const Configuration following = Configuration::read(true);
  EXPECT_EQ(following.script, some_choices());
  EXPECT_FALSE(following.recording);
  EXPECT_NE(RankSettings::of(following).fingerprint, RankSettings::of(recording).fingerprint)
      << "ranks that follow and ranks that measure would go different ways";
  std::ofstream(file) << "damaged";
  EXPECT_THAT(Configuration::read(true).disabled, HasSubstr("GRADWIRE_CHOICES: " + file));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gradwire::drop_in
