// Tests files of keys, which ones are refused, and that keys are wiped. None of it needs libgradwire_security.so.
#include "security/key.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hex_bytes.hpp"
#include "security/job_key.hpp"
#include "security/key_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::security {
namespace {

namespace fs = std::filesystem;
using gradwire::test::error_of;
using gradwire::test::ScratchFolder;
using gradwire::test::to_hex;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSecret = "0123456789abcdefSECRETSECRETSECR";

void write(const fs::path& file, const std::string& bytes, mode_t mode = 0600) {
  std::ofstream(file, std::ios::binary) << bytes;
  ASSERT_EQ(::chmod(file.c_str(), mode), 0);
}

std::string refusal(const fs::path& file) {
  const Error error = error_of([&] { static_cast<void>(read_key_file(file)); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(file.string()), Not(HasSubstr("SECRET")))) << "names the file, not the key";
  return error.what();
}

TEST(KeyFile, IsWrittenOnceAndRead) {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "job.key";
  const mode_t before = ::umask(0);
  const Key key = Key::random();
  write_key_file(file, key);
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(status.st_size, 32);
  EXPECT_EQ(to_hex(read_key_file(file).bytes()), to_hex(key.bytes()));

  const Error again = error_of([&] { write_key_file(file, Key::random()); });
  EXPECT_THAT(again.what(), AllOf(HasSubstr(file.string()), HasSubstr("never overwritten")));
  EXPECT_EQ(to_hex(read_key_file(file).bytes()), to_hex(key.bytes()));
  fs::create_symlink(folder.path() / "nowhere", folder.path() / "link");
  EXPECT_THROW(write_key_file(folder.path() / "link", key), Error);
  EXPECT_FALSE(fs::exists(folder.path() / "nowhere")) << "written through a link";
  EXPECT_THAT(error_of([&] { write_key_file(folder.path() / "no" / "folder", key); }).what(),
              HasSubstr("No such file"));
}

TEST(KeyFile, OfThisUserAloneIsTaken) {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "job.key";
  write(file, kSecret);
  for (const mode_t mode : {0600U, 0400U}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    EXPECT_NO_THROW(static_cast<void>(read_key_file(file))) << mode;
  }
  for (const mode_t bit : {040U, 020U, 010U, 04U, 02U, 01U}) {
    ASSERT_EQ(::chmod(file.c_str(), 0600U | bit), 0);
    EXPECT_THAT(refusal(file), AllOf(HasSubstr("mode"), HasSubstr("chmod 600 " + file.string()))) << bit;
  }
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(refusal(file), HasSubstr("its mode is 0644"));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  fs::create_symlink(file, folder.path() / "link");
  EXPECT_NO_THROW(static_cast<void>(read_key_file(folder.path() / "link")));
  if (::geteuid() != 0) {
    return;  // only root can give files away
  }
  ASSERT_EQ(::chown(file.c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal(file), AllOf(HasSubstr("belongs to user 12345"), HasSubstr("install -m 600")));
  EXPECT_THAT(refusal(folder.path() / "link"), HasSubstr("belongs to user 12345"));
}

TEST(KeyFile, OtherThingsAreNoKeys) {
  const ScratchFolder folder;
  EXPECT_THAT(refusal(folder.path() / "none"), HasSubstr("gradwire key new"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no regular file"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("no regular file"));
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe), HasSubstr("no regular file"));
  const fs::path file = folder.path() / "job.key";
  write(file, "");
  EXPECT_THAT(refusal(file), HasSubstr("it has 0 bytes, and a key has exactly 32"));
  write(file, std::string(kSecret).substr(1));
  EXPECT_THAT(refusal(file), HasSubstr("31 bytes"));
  write(file, std::string(kSecret) + '\n');
  EXPECT_THAT(refusal(file), HasSubstr("more than 32 bytes"));
}

// GRADWIRE_KEY, while this is there.
class KeyVariable {
 public:
  explicit KeyVariable(const char* value) { ::setenv("GRADWIRE_KEY", value, 1); }  // NOLINT(concurrency-mt-unsafe)
  ~KeyVariable() { ::unsetenv("GRADWIRE_KEY"); }                                   // NOLINT(concurrency-mt-unsafe)
  KeyVariable(const KeyVariable&) = delete;
  KeyVariable& operator=(const KeyVariable&) = delete;
};

TEST(JobKey, AnEmptyVariableIsAnErrorAndNoJobWithoutAKey) {
  EXPECT_FALSE(key_setting().has_value());
  const KeyVariable variable("");
  for (const char* policy : {"", "file:/a"}) {
    const Error error = error_of([&] { static_cast<void>(key_setting(policy)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("GRADWIRE_KEY is empty"), HasSubstr("unset it")));
  }
}

TEST(JobKey, ARelativePathBeginsWhereTheProcessStarted) {
  const fs::path start = fs::current_path();
  const ScratchFolder folder;
  fs::current_path(folder.path());
  const std::optional<KeySetting> of_policy = key_setting("file:keys/job.key");
  const KeyVariable variable("file:job.key");
  const std::optional<KeySetting> setting = key_setting("file:/other");
  fs::current_path(start);
  ASSERT_TRUE(of_policy && setting);
  EXPECT_EQ(of_policy->file, start / "keys/job.key");
  EXPECT_EQ(setting->file, start / "job.key");
  EXPECT_EQ(setting->source, "GRADWIRE_KEY");
}

TEST(Key, IsWipedWhenItGoes) {
  const std::byte* left = nullptr;
  {
    Key key(std::as_bytes(std::span(std::string_view(kSecret))));
    Key moved = std::move(key);
    left = moved.bytes().data();
    EXPECT_EQ(to_hex(moved.bytes()), gradwire::test::hex_of(kSecret));
    moved = Key();  // the old bytes go with the temporary
    EXPECT_TRUE(std::all_of(left, left + kKeyBytes, [](std::byte byte) { return byte == std::byte{0}; }));
    moved = Key(std::as_bytes(std::span(std::string_view(kSecret))));
    left = moved.bytes().data();
  }
  EXPECT_TRUE(std::all_of(left, left + kKeyBytes, [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Key, RandomOnesDiffer) {
  std::set<std::string> seen;
  std::vector<Key> keys;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back(Key::random());
    EXPECT_TRUE(seen.insert(to_hex(keys.back().bytes())).second);
  }
  EXPECT_THROW(Key(std::span<const std::byte>()), Error);
}

// The kernel says of each mapping whether core dumps leave it out ("dd") and whether it is locked ("lo").
std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-');
    if (dash != std::string::npos && line.find(':') > dash) {
      const auto begin = std::stoull(line, nullptr, 16);
      const auto end = std::stoull(line.substr(dash + 1), nullptr, 16);
      inside = begin <= reinterpret_cast<std::uintptr_t>(address) && reinterpret_cast<std::uintptr_t>(address) < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + ' ';
    }
  }
  return "";
}

TEST(Key, IsLeftOutOfCoreDumpsAndLockedIfAsked) {
  const Key key = Key::random();
  EXPECT_THAT(flags_of(key.bytes().data()), HasSubstr(" dd "));
#ifdef GRADWIRE_SANITIZED
  GTEST_SKIP() << "sanitizers make mlock do nothing";
#endif
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_cur < 1U << 20U) {
    GTEST_SKIP() << "this user may lock little memory";
  }
  lock_keys();
  EXPECT_THAT(flags_of(key.bytes().data()), HasSubstr(" lo "));
  std::vector<Key> more;
  for (int i = 0; i < 2000; ++i) {
    more.emplace_back();
  }
  EXPECT_THAT(flags_of(more.back().bytes().data()), AllOf(HasSubstr(" lo "), HasSubstr(" dd ")));
}

}  // namespace
}  // namespace gradwire::security
