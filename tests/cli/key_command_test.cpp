// Tests the commands of gradwire key, and that gradwire run refuses a bad key.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "cli/tool.hpp"
#include "gradwire/version.hpp"
#include "security/key_file.hpp"
#include "tests/support/hex.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class KeyCommand : public ToolTest {
 protected:
  void add_library() const {
    std::filesystem::copy_file(GRADWIRE_SECURITY_LIBRARY, folder_ / "lib" / "libgradwire_security.so");
  }
  // Writes the key of the examples in docs/reference/sealed-frames.md.
  void write_published_key() const {
    std::string bytes;
    for (int i = 0; i < 32; ++i) {
      bytes += static_cast<char>(i);
    }
    std::filesystem::permissions(write("published.key", bytes), std::filesystem::perms::owner_read);
  }
};

TEST_F(KeyCommand, NewMakesAKeyThatOthersCannotRead) {
  const Outcome outcome = gradwire("key new job.key");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("job.key: a new key"));
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "job.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  const std::string key = read_text(folder_ / "job.key");
  EXPECT_EQ(key.size(), 32);
  EXPECT_THAT(outcome.output, Not(HasSubstr(hex_of(key))));
  const Outcome again = gradwire("key new job.key");
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, AllOf(HasSubstr("job.key"), HasSubstr("never overwritten")));
  EXPECT_EQ(read_text(folder_ / "job.key"), key);
}

TEST_F(KeyCommand, DeriveAndCheckAgreeWithTheDocument) {
  add_library();
  write_published_key();
  EXPECT_EQ(gradwire("key check published.key").output, "5d902d6b3db6b0b663bf99cf33687598\n");
  const Outcome derived = gradwire("key derive observe published.key observe.key");
  EXPECT_EQ(derived.status, 0) << derived.output;
  EXPECT_EQ(hex_of(read_text(folder_ / "observe.key")),
            "85b0538fa5972b2f7f9dc9bab732b3b57d67a28476443c22c7d29ffa68eddccc");
  EXPECT_THAT(derived.output, HasSubstr(gradwire("key check observe.key").output));
  EXPECT_EQ(gradwire("key derive join published.key observe.key").status, 2) << "overwrites a key";
  EXPECT_EQ(gradwire("key derive join published.key join.key").status, 0);
  EXPECT_EQ(hex_of(read_text(folder_ / "join.key")),
            "bc2a7b398547542353c96851242bc9ef2b60d8e56c220e334986093f0e7265a2");
}

TEST_F(KeyCommand, RunRefusesABadKeyBeforeTheJobStarts) {
  write_published_key();
  std::filesystem::permissions(folder_ / "published.key",
                               std::filesystem::perms::owner_read | std::filesystem::perms::others_read);
  const Outcome outcome = gradwire("run -- true", "GRADWIRE_KEY=file:published.key");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("mode is 0404"), HasSubstr("chmod 600")));
  EXPECT_THAT(gradwire("run -- true", "GRADWIRE_KEY=").output, HasSubstr("GRADWIRE_KEY"));
}

// A process with another key ends each connection. Its job runs all the same, and its join file stays. Mutation tried:
// the tool greets in clear text although there is a key.
TEST_F(KeyCommand, RunTakesNoJoinFileOfAJobWithAnotherKey) {
  add_library();
  write_published_key();
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string line =
      "gradwire-join " + std::string(kVersion) + " 0 4711 127.0.0.1 " + std::to_string(ntohs(address.sin_port)) + "\n";
  write("join", line);
  std::filesystem::permissions(folder_ / "join",
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  for (const bool keyed : {false, true}) {
    std::array<char, 2000> said{};
    std::thread process([&] {
      const int caller = accept(listener, nullptr, nullptr);
      EXPECT_GT(recv(caller, said.data(), said.size(), 0), 0);
      close(caller);
    });
    const Outcome outcome =
        gradwire("run --let-join join -- touch started", keyed ? "GRADWIRE_KEY=file:published.key" : "");
    process.join();
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.output, HasSubstr("belongs to a job that runs: its process 0 takes connections"));
    EXPECT_EQ(said[0], keyed ? '\x16' : 'g') << "the first byte of TLS, or of a greeting";
    EXPECT_EQ(read_text(folder_ / "join"), line);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "started"));
  }
  close(listener);
}

TEST_F(KeyCommand, SaysWhatIsWrong) {
  write_published_key();
  const Outcome without = gradwire("key check published.key");
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.output, AllOf(HasSubstr("libgradwire_security.so"), HasSubstr("libssl-dev")));
  add_library();
  std::filesystem::permissions(folder_ / "published.key",
                               std::filesystem::perms::owner_read | std::filesystem::perms::others_read);
  EXPECT_THAT(gradwire("key check published.key").output, AllOf(HasSubstr("mode is 0404"), HasSubstr("chmod 600")));
  EXPECT_THAT(gradwire("key derive rule published.key x").output, HasSubstr("join"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
  EXPECT_EQ(gradwire("key nwe x").status, 2);
  EXPECT_THAT(gradwire("key nwe x").output, HasSubstr("\"nwe\" is no command of gradwire key; write one of new"));
  EXPECT_THAT(gradwire("key").output, HasSubstr("write one of new, derive, check"));
}

}  // namespace
}  // namespace gradwire::test
