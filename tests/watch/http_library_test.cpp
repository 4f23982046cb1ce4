// Tests where libgradwire_export.so is searched, which one is loaded, and the message if there is none.
#include "watch/http_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "base/companion_library.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::ScratchFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(HttpLibrary, SaysWhatIsWrongAndWhatToInstall) {
  const auto why = [](const std::string& file) {
    return std::string(gradwire::test::error_of([&] { static_cast<void>(load_http_library(file)); }).what());
  };
  EXPECT_THAT(why("/nowhere/libgradwire_export.so"),
              AllOf(HasSubstr("/nowhere/libgradwire_export.so: no such file"), HasSubstr("prometheus-cpp-dev"),
                    HasSubstr("gradwire-export"), HasSubstr("The job goes on without")));
  EXPECT_THAT(why("libm.so.6"), HasSubstr("another library"));
  EXPECT_THAT(why(GRADWIRE_OTHER_EXPORT), HasSubstr("has version 999 where 2 is needed"));
}

TEST(HttpLibrary, IsSoughtWhereGradwireLiesAlone) {
  const auto lib = [](const char* folder) { return std::string(folder) + "/libgradwire_export.so"; };
  EXPECT_THAT(companion_places(kExportFile, "/opt/lib/libgradwire_mpi.so", false), ElementsAre(lib("/opt/lib")));
  EXPECT_THAT(companion_places(kExportFile, "/tmp/build/train", true), ElementsAre(lib("/tmp/build")));
  EXPECT_THAT(companion_places(kExportFile, "/tmp/gradwire/python/train", true),
              ElementsAre(lib("/tmp/gradwire/python")));
  EXPECT_THAT(companion_places(kExportFile, "/opt/bin/gradwire", true), Each(HasSubstr("/opt/")))
      << "nothing above its prefix";
  EXPECT_THAT(companion_places(kExportFile, "/opt/bin/gradwire", true), Contains(lib("/opt/lib")));
  EXPECT_THAT(companion_places(kExportFile, "/opt/libexec/gradwire/gradwire-doctor", true), Contains(lib("/opt/lib")));
  EXPECT_THAT(companion_places(kExportFile, "/tmp/gradwire/gradwire-doctor", true), ElementsAre(lib("/tmp/gradwire")));
  EXPECT_THAT(companion_places(kExportFile, "/opt/lib/gradwire/python/gradwire_torch.so", false),
              ElementsAre(lib("/opt/lib/gradwire/python"), lib("/opt/lib")));
  EXPECT_THAT(companion_places(kExportFile, "", true), IsEmpty());
#ifdef GRADWIRE_TORCH_MODULE
  EXPECT_THAT(companion_places(kExportFile, GRADWIRE_TORCH_MODULE, false), Contains(GRADWIRE_EXPORT_LIBRARY))
      << "of this build";
#endif
}

// The test below runs this one in another place.
TEST(HttpLibrary, DISABLED_SaysWhatItFinds) {
  std::puts(gradwire::test::error_of([] { static_cast<void>(load_http_library()); }).what());
}

TEST(HttpLibrary, OfAnotherFolderOrUserIsNotLoaded) {
  const ScratchFolder folder;
  const auto program = folder.path() / "build" / "bin" / "train";
  std::filesystem::create_directories(program.parent_path());
  std::filesystem::create_directories(folder.path() / "build" / "lib");
  std::filesystem::copy_file("/proc/self/exe", program);
  const auto found = [&](const std::filesystem::path& at) {
    std::filesystem::copy_file(GRADWIRE_OTHER_EXPORT, at);
    const auto outcome = gradwire::test::run_program(
        program.string() + " --gtest_also_run_disabled_tests --gtest_filter=HttpLibrary.DISABLED_SaysWhatItFinds");
    return outcome.output;
  };
  const auto taken = HasSubstr("has version 999");
  EXPECT_THAT(found(folder.path() / "libgradwire_export.so"), Not(taken));
  const auto beside = folder.path() / "build" / "lib" / "libgradwire_export.so";
  EXPECT_THAT(found(beside), taken);
  std::filesystem::remove(beside);
  std::filesystem::permissions(beside.parent_path(), std::filesystem::perms::all);
  EXPECT_THAT(found(beside), Not(taken)) << "any user could have put it there";
}

TEST(HttpLibrary, AProgramFoundInPathIsNotTheFileOfThatNameHere) {
  const ScratchFolder folder;
  std::filesystem::create_directories(folder.path() / "programs");
  std::filesystem::create_directories(folder.path() / "here");
  std::filesystem::copy_file("/proc/self/exe", folder.path() / "programs" / "train");
  std::filesystem::copy_file("/proc/self/exe", folder.path() / "here" / "train");
  std::filesystem::copy_file(GRADWIRE_OTHER_EXPORT, folder.path() / "here" / "libgradwire_export.so");
  const auto outcome = gradwire::test::run_program(
      "cd '" + folder.file("here") + "' && PATH='" + folder.file("programs") +
      "' train --gtest_also_run_disabled_tests --gtest_filter=HttpLibrary.DISABLED_SaysWhatItFinds");
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("needs libgradwire_export.so"), Not(HasSubstr("has version 999"))));
}

}  // namespace
}  // namespace gradwire::watch
