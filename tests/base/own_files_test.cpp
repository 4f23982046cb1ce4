// Tests which files are removed, and that under umask 000 all may read a folder, but only its owner may write to it.
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
  std::error_code error;
  make_own_folders(folder_ / "b/c/", error);
  EXPECT_FALSE(error);
  EXPECT_EQ(mode_of(folder_ / "b"), 0755U);
  EXPECT_EQ(mode_of(folder_ / "b/c"), 0755U);
}

// Mutation tried: the reason is read after another call.
TEST_F(OwnFiles, AFolderThatCannotBeMadeSaysWhy) {
  std::ofstream(folder_ / "a") << "text";
  std::error_code error;
  make_own_folders(folder_ / "a/b", error);
  EXPECT_EQ(error, std::errc::not_a_directory);
  make_own_folders("/proc/self/no/such", error);
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  make_own_folders("/sys/kernel/none", error);  // EPERM; on a read-only mount it is EROFS
  EXPECT_TRUE(error == std::errc::operation_not_permitted || error == std::errc::read_only_file_system ||
              error == std::errc::permission_denied)
      << error.message();
  make_own_folders(folder_, error);
  EXPECT_FALSE(error);
}

TEST_F(OwnFiles, ALinkGoesItselfAndWhatItLeadsToStays) {
  for (const char* name : {"away", "here"}) {
    fs::create_directories(folder_ / name / "deep");
    std::ofstream(folder_ / name / "first") << "text";
    std::ofstream(folder_ / name / "deep/second") << "text";
  }
  fs::create_directory_symlink(folder_ / "away", folder_ / "link");
  fs::create_directory_symlink(folder_ / "away", folder_ / "here/link");
  std::error_code error;
  for (const char* name : {"link", "here"}) {
    remove_folder(folder_ / name, "first", error);
    EXPECT_FALSE(error) << error.message();
    EXPECT_FALSE(fs::exists(fs::symlink_status(folder_ / name))) << name;
  }
  EXPECT_TRUE(fs::exists(folder_ / "away/first"));
  EXPECT_TRUE(fs::exists(folder_ / "away/deep/second"));
  remove_folder(folder_ / "away/first", "first", error);  // this is a file
  EXPECT_FALSE(fs::exists(folder_ / "away/first"));
  unlink_link(folder_ / "away");
  EXPECT_TRUE(fs::exists(folder_ / "away"));
}

}  // namespace
}  // namespace gradwire
