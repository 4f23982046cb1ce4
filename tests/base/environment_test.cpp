// Compares the table of environment variables with docs/reference/environment.md.
#include "base/environment.hpp"

#include "base/emulated_link.hpp"
#include "base/trace_target.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

TEST(Environment, ReadsOnlyWhatIsInTheTable) {
  for (const EnvironmentVariable& variable : environment_variables()) {
    const std::string name(variable.name);
    EXPECT_THAT(name, ::testing::StartsWith("GRADWIRE_"));
    EXPECT_FALSE(variable.values.empty() || variable.meaning.empty()) << name;
    unsetenv(name.c_str());
    EXPECT_EQ(environment(name), std::nullopt);
    setenv(name.c_str(), "", 1);
    EXPECT_EQ(environment(name), std::nullopt) << "empty is unset";
    setenv(name.c_str(), "x y", 1);
    EXPECT_EQ(environment(name), "x y");
    unsetenv(name.c_str());
  }
  try {
    (void)environment("HOME");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("HOME"));
  }
}

TEST(Environment, FlagsAreZeroOrOne) {
  const std::string name = "GRADWIRE_DRY_RUN";
  unsetenv(name.c_str());
  EXPECT_FALSE(environment_flag(name));
  setenv(name.c_str(), "1", 1);
  EXPECT_TRUE(environment_flag(name));
  setenv(name.c_str(), "0", 1);
  EXPECT_FALSE(environment_flag(name));
  setenv(name.c_str(), "yes", 1);
  try {
    (void)environment_flag(name);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "GRADWIRE_DRY_RUN is \"yes\"; write 0 or 1");
  }
  unsetenv(name.c_str());
}

// Reads rows of the form | `NAME` | values | default | meaning |, with code marks dropped and \| read as |.
std::map<std::string, std::vector<std::string>> documented(const std::string& document) {
  std::ifstream stream(GRADWIRE_SOURCE_DIR "/" + document);
  EXPECT_TRUE(stream) << document << " is missing";
  std::map<std::string, std::vector<std::string>> rows;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("| `GRADWIRE_")) {
      continue;
    }
    line = std::regex_replace(line, std::regex("\\\\\\|"), "\x01");
    std::vector<std::string> cells;
    const std::regex cell("\\|([^|]*)");
    for (std::sregex_iterator at(line.begin(), line.end(), cell), end; at != end; ++at) {
      std::string text = std::regex_replace((*at)[1].str(), std::regex("^ +| +$|`"), "");
      cells.push_back(std::regex_replace(text, std::regex("\x01"), "|"));
    }
    rows[cells.at(0)] = cells;
  }
  return rows;
}

TEST(Environment, WrongValuesAreNamed) {
  EXPECT_NO_THROW(check_environment());
  for (const auto& [name, value] :
       {std::pair{"GRADWIRE_SIMD", "avx2"}, std::pair{"GRADWIRE_LOG", "loud"}, std::pair{"GRADWIRE_TIMEOUT", "soon"},
        std::pair{"GRADWIRE_DISABLE", "yes"}, std::pair{"GRADWIRE_SLOW", "on"}, std::pair{"GRADWIRE_SLOW", "0"},
        std::pair{"GRADWIRE_METRICS", "http:port"}, std::pair{"GRADWIRE_TRACE", "tr:steps=9-1"},
        std::pair{"GRADWIRE_TRACE", "tr:foo=1"}, std::pair{"GRADWIRE_TRACE", "tr:steps=1-2:steps=3-4"},
        std::pair{"GRADWIRE_TRACE", ":steps=1-2"}, std::pair{"GRADWIRE_RECORD_GRADIENTS", "g:steps=0"},
        std::pair{"GRADWIRE_RECORD_GRADIENTS", "g:steps=513"}, std::pair{"GRADWIRE_RECORD_GRADIENTS", ":steps=3"}}) {
    setenv(name, value, 1);
    try {
      check_environment();
      ADD_FAILURE() << name << '=' << value << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    unsetenv(name);
  }
  setenv("GRADWIRE_METRICS", "here", 1);
  setenv("GRADWIRE_TRACE", ":steps=1-2", 1);
  setenv("GRADWIRE_SLOW", "bad", 1);
  EXPECT_NO_THROW(check_environment(ObservingToo::no)) << "this is a variable of a running job";
  unsetenv("GRADWIRE_TRACE");
  unsetenv("GRADWIRE_SLOW");
  setenv("GRADWIRE_METRICS", "file:/tmp,http:9464+rank", 1);
  EXPECT_NO_THROW(check_environment());
  unsetenv("GRADWIRE_METRICS");
  setenv("GRADWIRE_LOG", "off", 1);
  EXPECT_NO_THROW(check_environment());
  unsetenv("GRADWIRE_LOG");
}

TEST(Environment, AllWrongValuesAreNamed) {
  setenv("GRADWIRE_TRACE", "tr:step=1-2", 1);
  setenv("GRADWIRE_SIMD", "avx2", 1);
  setenv("GRADWIRE_TIMEOUT", "soon", 1);
  EXPECT_EQ(environment_problems().size(), 3U);
  EXPECT_EQ(environment_problems(ObservingToo::no).size(), 2U);
  for (const char* name : {"GRADWIRE_TRACE", "GRADWIRE_SIMD", "GRADWIRE_TIMEOUT"}) {
    unsetenv(name);
  }
  EXPECT_TRUE(environment_problems().empty());
}

TEST(Environment, ATraceIsADirectoryWithOrWithoutSteps) {
  const TraceTarget steps = TraceTarget::parse("/tmp/a:b:steps=3-7");
  EXPECT_EQ(steps.directory, "/tmp/a:b");
  EXPECT_EQ(steps.first_step, 3U);
  EXPECT_EQ(steps.last_step, 7U);
  EXPECT_EQ(TraceTarget::parse("/x:a=b/c").directory, "/x:a=b/c");
  EXPECT_EQ(TraceTarget::parse("tr=1").directory, "tr=1");
}

TEST(Environment, IsDocumentedCompletely) {
  const std::string document = "docs/reference/environment.md";
  auto rows = documented(document);
  for (const EnvironmentVariable& variable : environment_variables()) {
    const auto row = rows.extract(std::string(variable.name));
    ASSERT_FALSE(row.empty()) << variable.name << " is missing in " << document;
    EXPECT_EQ(row.mapped().at(1), variable.values) << variable.name;
    EXPECT_EQ(row.mapped().at(2), variable.default_value) << variable.name;
    EXPECT_EQ(row.mapped().at(3), variable.meaning) << variable.name;
  }
  for (const auto& [name, cells] : rows) {
    ADD_FAILURE() << name << " is in " << document << " but not in the table of the code";
  }
}

TEST(EmulatedLink, StandsInTheNameOfATransport) {
  EXPECT_EQ(over_emulated_link("mpi", ""), "mpi");
  EXPECT_EQ(over_emulated_link("mpi", "1Gbit/s"), "mpi, emulated 1Gbit/s");
  EXPECT_EQ(over_emulated_link("", "1Gbit/s"), "emulated 1Gbit/s");
  EXPECT_EQ(over_emulated_link("throttled(mpi), emulated 2Gbit/s", "1Gbit/s"), "throttled(mpi), emulated 2Gbit/s");
  EXPECT_EQ(emulated_link_in("mpi, emulated 1Gbit/s,5ms"), "1Gbit/s,5ms");
  EXPECT_EQ(emulated_link_in("mpi"), "");
  EXPECT_EQ(emulated_link_of_job(), "");
  ::setenv("GRADWIRE_EMULATED_LINK", "1Gbit/s", 1);
  EXPECT_EQ(emulated_link_of_job(), "1Gbit/s");
  ::unsetenv("GRADWIRE_EMULATED_LINK");
}

}  // namespace
}  // namespace gradwire
