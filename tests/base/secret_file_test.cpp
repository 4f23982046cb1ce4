// Tests which files a secret is taken from, and that messages do not repeat it. Mutations tried: group and others are
// not looked at; links are refused; only the lengths of secrets are compared.
#include "base/secret_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/constant_time.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire {
namespace {

using test::error_of;
using test::ScratchFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "0123456789abcdef-._~+/=";

std::string file_with(const ScratchFolder& folder, const std::string& content, mode_t mode = 0600) {
  const std::string file = folder.file("token");
  std::ofstream(file) << content;
  EXPECT_EQ(::chmod(file.c_str(), mode), 0);
  return file;
}

std::string why_no_token(const std::string& file) {
  return error_of([&] { static_cast<void>(read_token_file(file)); }).what();
}

TEST(SecretFile, ATokenIsOneLine) {
  const ScratchFolder folder;
  EXPECT_EQ(read_token_file(file_with(folder, kToken)), kToken);
  EXPECT_EQ(read_token_file(file_with(folder, std::string(kToken) + "\n", 0400)), kToken);
  EXPECT_EQ(read_token_file(file_with(folder, std::string(4096, 'x') + "\n")).size(), 4096U);
  for (const std::string& other : {std::string(), std::string("short0123456789"), std::string(4097, 'x'),
                                   std::string(5000, 'x'), std::string(kToken) + " x", std::string(kToken) + "\n\n",
                                   std::string(kToken) + "\r\n", std::string("0123456789\0abcdefgh", 18)}) {
    EXPECT_THAT(why_no_token(file_with(folder, other)),
                AllOf(HasSubstr("token file " + folder.file("token") + ": it is not one line of 16 to 4096"),
                      Not(HasSubstr("0123456789"))));
  }
}

TEST(SecretFile, OnlyItsOwnerMayReadIt) {
  const ScratchFolder folder;
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U, 0610U, 0601U, 0644U}) {
    EXPECT_THAT(why_no_token(file_with(folder, kToken, mode)),
                AllOf(HasSubstr("its mode is 0"), HasSubstr("run chmod 600 ")));
  }
  const std::string file = file_with(folder, kToken);
  ASSERT_EQ(::symlink(file.c_str(), folder.file("link").c_str()), 0);
  EXPECT_EQ(read_token_file(folder.file("link")), kToken);
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(why_no_token(folder.file("link")), HasSubstr("its mode is 0644"));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    ASSERT_EQ(::chown(file.c_str(), 1234, 0), 0);
    EXPECT_THAT(why_no_token(file), AllOf(HasSubstr("belongs to user 1234"), HasSubstr("install -m 600")));
  }
}

TEST(SecretFile, OtherThingsAreRefusedAtOnce) {
  const ScratchFolder folder;
  EXPECT_THAT(why_no_token(folder.file("none")), HasSubstr("cannot be read (No such file or directory)"));
  EXPECT_THAT(why_no_token(folder.path().string()), HasSubstr("it is no regular file"));
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(why_no_token(folder.file("pipe")), HasSubstr("it is no regular file"));
  EXPECT_THAT(why_no_token("/dev/null"), HasSubstr("it is no regular file"));
}

TEST(SecretFile, ASettingNamesAPath) {
  EXPECT_EQ(secret_path("file:/a b", "X"), "/a b");
  for (const char* other : {"", "file:", "0123456789abcdef", "FILE:/a"}) {
    const std::string why = error_of([&] { static_cast<void>(secret_path(other, "GRADWIRE_X")); }).what();
    EXPECT_THAT(why, AllOf(HasSubstr("GRADWIRE_X is not \"file:PATH\""), Not(HasSubstr("0123456789"))));
  }
}

TEST(SecretFile, SecretsAreEqualOnlyIfAllOfThemIs) {
  EXPECT_TRUE(equals_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abcabc", "abd", "xbc", "a"}) {
    EXPECT_FALSE(equals_secret(other, "abc")) << other;
  }
  EXPECT_FALSE(equals_secret("", ""));
  EXPECT_FALSE(equals_secret("a", ""));
}

}  // namespace
}  // namespace gradwire
