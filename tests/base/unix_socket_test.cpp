// Tests sockets with names: who may connect, what is replaced, and that a slow peer holds nobody up. Mutations tried:
// the mode is set after bind(); the name is removed without a look at who listens there.
#include "base/unix_socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire {
namespace {

using test::error_of;
using test::ScratchFolder;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

std::string why_not_at(const std::string& path) {
  return error_of([&] { static_cast<void>(listen_at(path)); }).what();
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(UnixSocket, IsItsOwnersAloneWhateverTheUmask) {
  for (const mode_t mask : {000U, 022U}) {
    const ScratchFolder folder;
    const mode_t before = ::umask(mask);
    const int listening = listen_at(folder.file("a"));
    ::umask(before);
    struct stat status {};
    ASSERT_EQ(::lstat(folder.file("a").c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    EXPECT_EQ(files_in(folder.path()), 1U);
    ::close(listening);
  }
}

TEST(UnixSocket, OneIsReplacedOnlyIfNobodyListensThere) {
  const ScratchFolder folder;
  const int first = listen_at(folder.file("a"));
  EXPECT_THAT(why_not_at(folder.file("a")), HasSubstr("another process listens there"));
  const int client = connect_to(folder.file("a"));
  EXPECT_GE(client, 0) << "it still listens";
  ::close(client);
  ::close(first);  // as the end of its process does
  EXPECT_LT(connect_to(folder.file("a")), 0);
  const int second = listen_at(folder.file("a"));
  EXPECT_GE(connect_to(folder.file("a")), 0);
  ::close(second);
}

TEST(UnixSocket, OtherFilesStay) {
  const ScratchFolder folder;
  std::ofstream(folder.file("a")) << "precious";
  EXPECT_THAT(why_not_at(folder.file("a")), HasSubstr("which is no socket"));
  EXPECT_EQ(test::read_text(folder.file("a")), "precious");
  std::filesystem::create_symlink(folder.file("none"), folder.file("b"));
  EXPECT_THAT(why_not_at(folder.file("b")), HasSubstr("which is no socket"));
  EXPECT_THAT(why_not_at(folder.file("none/a")), HasSubstr("No such file or directory"));
  if (::geteuid() == 0) {
    ::close(listen_at(folder.file("c")));
    ASSERT_EQ(::chown(folder.file("c").c_str(), 1234, 0), 0);
    EXPECT_THAT(why_not_at(folder.file("c")), HasSubstr("a socket of another user"));
  }
}

TEST(UnixSocket, ALongPathIsAllowedAndALongNameIsNot) {
  const ScratchFolder folder;
  const std::filesystem::path deep = folder.path() / std::string(120, 'd');
  std::filesystem::create_directory(deep);
  const int listening = listen_at(deep / "a");
  EXPECT_GE(connect_to(deep / "a"), 0);
  ::close(listening);
  EXPECT_THAT(why_not_at(folder.file(std::string(100, 'n'))), HasSubstr("too long for a socket"));
}

TEST(UnixSocket, NeitherSideWaitsForEver) {
  const ScratchFolder folder;
  const int listening = listen_at(folder.file("a"));
  const int client = connect_to(folder.file("a"));
  const int served = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  std::string text;
  EXPECT_FALSE(receive_before(client, text, 100, in(50ms))) << "nothing was sent";
  EXPECT_TRUE(send_before(served, "abcdef", in(50ms)));
  EXPECT_TRUE(receive_before(client, text, 4, in(50ms)));
  EXPECT_EQ(text, "abcd");
  EXPECT_FALSE(receive_before(client, text, 4, in(50ms))) << "it is full";
  EXPECT_FALSE(send_before(served, std::string(64 << 20, 'x'), in(50ms))) << "nobody reads";
  ::close(served);
  EXPECT_FALSE(send_before(client, "x", in(50ms)));
  for (const int each : {client, listening}) {
    ::close(each);
  }
}

}  // namespace
}  // namespace gradwire
