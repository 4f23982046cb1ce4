// Tests metrics over a Unix socket: the text that is served, the user who may read it, and sockets that other processes
// left.
#include "watch/socket_listener.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/unix_socket.hpp"
#include "gradwire/error.hpp"
#include "observe/collector.hpp"
#include "observe/watching.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/watch/five_steps.hpp"
#include "tests/watch/forked_child.hpp"
#include "watch/live/fetch.hpp"
#include "watch/live/folder_reader.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::ScratchFolder;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class Sockets : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) {
      GTEST_SKIP() << "it allows no threads in a child of a process with threads";
    }
  }

  // Runs `body` in a child whose metrics go to sockets in the folder.
  template <typename Body>
  int served(Body&& body) {
    const pid_t child = start_child([&] {
      ::setenv("GRADWIRE_JOB", "tried", 1);
      ::setenv("GRADWIRE_METRICS", ("unix:" + folder_.path().string()).c_str(), 1);
      body();
      std::_Exit(HasFailure() ? 1 : 0);
    });
    return status_of(child);
  }
  [[nodiscard]] std::filesystem::path socket() const { return folder_.path() / socket_name("library", 0, "tried"); }

  const ScratchFolder folder_;
};

std::string why_not(const std::filesystem::path& socket) {
  try {
    return live::fetch(socket);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(Sockets, ServeAllRanksOfAProcess) {
  const int ended = served([&] {
    const mode_t before = ::umask(0);
    run_five_steps(3);
    observe::collect();
    ::umask(before);
    struct stat status {};
    EXPECT_EQ(::lstat(socket().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    const std::vector<live::RankValues> ranks = live::ranks_in(live::fetch(socket()), 1);
    EXPECT_EQ(ranks.size(), 3U);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank].name.second, static_cast<int>(rank));
      EXPECT_EQ(ranks[rank].job, "tried");
      EXPECT_EQ(ranks[rank].counters.steps_published, 5);
      EXPECT_EQ(ranks[rank].codec, "int8");
    }
    const live::FolderSnapshot snapshot = live::FolderReader(folder_.path()).read();
    EXPECT_EQ(snapshot.ranks.size(), 3U);
    EXPECT_EQ(snapshot.problem, "");
    observe::stop_collecting();
    EXPECT_FALSE(std::filesystem::exists(socket())) << "it goes with the job";
  });
  EXPECT_EQ(ended, 0);
}

// Mutation tried: files of ranks that answered are shown as well.
TEST_F(Sockets, RanksThatAlsoWriteFilesAreShownOnce) {
  const int ended = served([&] {
    const std::string folder = folder_.path().string();
    ::setenv("GRADWIRE_METRICS", ("unix:" + folder + ",file:" + folder).c_str(), 1);
    run_five_steps(2);
    observe::collect();
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / file_name("library", 1, "tried")));
    const live::FolderSnapshot snapshot = live::FolderReader(folder_.path()).read();
    EXPECT_EQ(snapshot.ranks.size(), 2U);
    EXPECT_TRUE(snapshot.skipped.empty());
  });
  EXPECT_EQ(ended, 0);
}

TEST_F(Sockets, OneThatAKilledProcessLeftIsReplaced) {
  const int killed = served([&] {
    run_five_steps(1);
    observe::collect();
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_EQ(killed, 128 + SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(socket()));
  EXPECT_THAT(why_not(socket()), HasSubstr("its process was killed"));
  const live::FolderSnapshot snapshot = live::FolderReader(folder_.path()).read();
  ASSERT_EQ(snapshot.skipped.size(), 1U);
  EXPECT_THAT(snapshot.skipped[0].reason, HasSubstr("its process was killed"));
  const int ended = served([&] {
    run_five_steps(1);
    observe::collect();
    EXPECT_THAT(why_not(socket()), HasSubstr("gradwire_info"));
  });
  EXPECT_EQ(ended, 0);
}

TEST_F(Sockets, OneThatIsInUseStaysAndIsOneWarning) {
  const int listening = listen_at(socket());
  const int ended = served([&] {
    std::string told;
    observe::begin_watching(
        {.rank = [] { return std::optional(0); }, .warn = [&](const std::string& text) { told += text; }});
    observe::collect();
    observe::collect();
    EXPECT_THAT(told, HasSubstr("metrics: cannot listen at " + socket().string() + ": another process listens there"));
    EXPECT_EQ(told.find("cannot listen"), told.rfind("cannot listen"));
  });
  EXPECT_EQ(ended, 0);
  EXPECT_GE(connect_to(socket()), 0);
  ::close(listening);
}

// Mutations tried: a request may take 60 s; a request may have any length.
TEST_F(Sockets, ForgedSlowAndLongRequestsAreRefused) {
  const int ended = served([&] {
    run_five_steps(1);
    observe::collect();
    const auto ask = [&](const std::string& request) {
      const int client = connect_to(socket());
      static_cast<void>(send_before(client, request, std::chrono::steady_clock::now() + 1s));
      std::string answer;
      while (receive_before(client, answer, 1 << 20, std::chrono::steady_clock::now() + 4s)) {
      }
      ::close(client);
      return answer.substr(0, 12);
    };
    EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.0 200");
    EXPECT_EQ(ask("GET /other HTTP/1.1\r\n\r\n"), "HTTP/1.0 404");
    EXPECT_EQ(ask("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.0 405");
    EXPECT_EQ(ask(std::string(1 << 20, 'x')), "HTTP/1.0 431");
    const auto begin = std::chrono::steady_clock::now();
    const int idle = connect_to(socket());
    EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.0 200") << "after the one that says nothing";
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
    ::close(idle);
  });
  EXPECT_EQ(ended, 0);
}

TEST_F(Sockets, AChildThatForksOffServesNothingAndRemovesNothing) {
  const int ended = served([&] {
    run_five_steps(1);
    observe::collect();
    const pid_t child = start_child([] { std::exit(0); });
    EXPECT_EQ(status_of(child), 0);
    EXPECT_THAT(why_not(socket()), HasSubstr("gradwire_info"));
  });
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace gradwire::watch
