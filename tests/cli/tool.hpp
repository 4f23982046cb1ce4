// Runs the tool as a user does, from a folder of its own laid out like an installation.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/run_program.hpp"

namespace gradwire::test {

/// A folder with bin/gradwire and, in lib/, the marker under the names of the preloaded libraries.
class ToolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    folder_ = fs::temp_directory_path() / ("gradwire_cli_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "lib");
    fs::copy_file(GRADWIRE_TOOL, folder_ / "bin/gradwire");
    for (const char* name : {"libgradwire_mpi.so", "libgradwire_mpich.so", "libgradwire_any.so"}) {
      fs::copy_file(GRADWIRE_MARKER, folder_ / "lib" / name);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  /// Writes a script into the folder that stands for another program.
  void write_script(const std::string& name, const std::string& text) const {
    write(name, "#!/bin/sh\n" + text);
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }

  /// Runs a line for the shell that starts with `gradwire `, in the folder, with variables such as "A=1" before it.
  [[nodiscard]] Outcome gradwire(const std::string& arguments, const std::string& variables = "") const {
    return run_program("cd '" + folder_.string() + "' && env -u GRADWIRE_POLICY -u GRADWIRE_REPORT " +
                       root_variables() + " " + variables + " timeout -k 5 60 bin/gradwire " + arguments);
  }

  /// Returns the variables that Open MPI needs to run as root: it must be told twice that this is meant.
  static std::string root_variables() {
    return ::geteuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" : "";
  }

  std::filesystem::path folder_;
};

}  // namespace gradwire::test
