// Compares documents and pictures that are committed with what tests write: WRITE=1 in the environment writes them
// again.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

/// Compares `file`, a path in the repository, with `wanted`, byte for byte; if WRITE is set and not empty, writes it
/// first. A failure says how to write it.
inline testing::AssertionResult is_committed(const std::filesystem::path& file, const std::string& wanted) {
  const std::filesystem::path path = GRADWIRE_SOURCE_DIR / file;
  if (const char* const write = std::getenv("WRITE"); write != nullptr && *write != '\0') {
    std::ofstream(path, std::ios::binary) << wanted;
  }
  if (read_text(path) == wanted) {
    return testing::AssertionSuccess();
  }
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  return testing::AssertionFailure() << file.string() << " is not what this test makes; write it: WRITE=1 "
                                     << program_invocation_short_name << " --gtest_filter=" << test.test_suite_name()
                                     << '.' << test.name();
}

}  // namespace gradwire::test
