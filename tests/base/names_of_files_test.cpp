// Tests the places of files that environment variables name, and the names that separate the worlds of one job.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/start_directory.hpp"
#include "base/text.hpp"
#include "base/world_name.hpp"

namespace gradwire {
namespace {

TEST(StartDirectory, StaysWhereTheProcessStarted) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/");
  const std::string found = from_start_directory("reports/one.json");
  std::filesystem::current_path(before);
  EXPECT_EQ(found, (before / "reports/one.json").string());
  EXPECT_EQ(from_start_directory("/tmp/reports"), "/tmp/reports");
  EXPECT_EQ(from_start_directory(""), "");
}

TEST(PlainCharacters, AreLettersDigitsDotLineAndDash) {
  std::string plain;
  for (int c = 0; c < 256; ++c) {
    if (text::is_plain(static_cast<char>(c))) {
      plain += static_cast<char>(c);
    }
  }
  EXPECT_EQ(plain, "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
}

TEST(WorldName, StandsInNamesOfSpawnedWorldsAlone) {
  EXPECT_EQ(with_world_name("mpi"), "mpi");
  EXPECT_EQ(file_with_world_name("reports/calls-7.json"), "reports/calls-7.json");
  EXPECT_EXIT(
      {
        name_world("spawned-12");
        name_world("another");  // the first name stays
        const bool right = with_world_name("mpi") == "mpi-spawned-12" &&
                           file_with_world_name("reports/calls-7.json") == "reports/calls-7-spawned-12.json" &&
                           file_with_world_name("calls") == "calls-spawned-12";
        std::_Exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gradwire
