// Under umask 000 a file may be read by all, and written by its owner.
#include "base/own_files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gradwire {
namespace {

namespace fs = std::filesystem;

class OwnFiles : public ::testing::Test {
 protected:
  OwnFiles() : mask_(::umask(0)) { fs::create_directories(folder_); }
  ~OwnFiles() override {
    ::umask(mask_);
    fs::remove_all(folder_);
  }
  static unsigned mode_of(const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); }

  const mode_t mask_;
  const fs::path folder_ = fs::temp_directory_path() / ("gradwire_own_files_" + std::to_string(::getpid()));
};

TEST_F(OwnFiles, OthersMayNotWrite) {
  make_own_file(folder_ / "a");
  EXPECT_EQ(mode_of(folder_ / "a"), 0644U);
  std::error_code error;
  make_own_folders(folder_ / "b/c/", error);
  EXPECT_FALSE(error);
  EXPECT_EQ(mode_of(folder_ / "b"), 0755U);
  EXPECT_EQ(mode_of(folder_ / "b/c"), 0755U);
  ::umask(077);
  make_own_file(folder_ / "d");
  EXPECT_EQ(mode_of(folder_ / "d"), 0600U);
}

TEST_F(OwnFiles, WhatIsThereStays) {
  std::ofstream(folder_ / "a") << "text";
  make_own_file(folder_ / "a");
  EXPECT_EQ(fs::file_size(folder_ / "a"), 4U);
  EXPECT_EQ(mode_of(folder_ / "a"), 0666U);
  make_own_file(folder_ / "no/such/folder");
  EXPECT_FALSE(fs::exists(folder_ / "no"));
  std::error_code error;
  make_own_folders(folder_ / "a/b", error);
  EXPECT_TRUE(error) << "a file is in the way";
  make_own_folders(folder_, error);
  EXPECT_FALSE(error);
}

}  // namespace
}  // namespace gradwire
