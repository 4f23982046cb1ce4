// Tests processes whose connections are reset while all of them live.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <random>

#include "tests/transport/tcp_job.hpp"

namespace gradwire::test {
namespace {

// Returns the TCP connections that this process holds: both ends of those between its process objects.
std::vector<int> connections() {
  std::vector<int> found;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
      found.push_back(fd);
    }
  }
  return found;
}

// Resets connections as a firewall does: the other end gets a reset, and this end is closed. Those that are already
// gone are skipped.
std::size_t reset(std::span<const int> fds) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  return static_cast<std::size_t>(
      // This is not ::connect(), since ThreadSanitizer would report a race with the thread that reads there.
      std::ranges::count_if(fds, [&](int fd) { return ::syscall(SYS_connect, fd, &none, sizeof(none)) == 0; }));
}

std::size_t count_of(Ear& ear, Id from, const std::string& what) {
  const auto heard = ear.heard(from);
  return static_cast<std::size_t>(std::ranges::count(heard, what));
}

// Mutations tried: connections are not restored; the side that did not dial does not ask for it.
TEST_F(TcpProcesses, ResetsBetweenLivingProcessesAreNoEnd) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  start(3);
  const std::vector<Ear*> all{&at(0), &at(1), &at(2)};
  expect_all_reach_all(all, "hello");
  constexpr int kRounds = 30;
  std::size_t broken = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (Ear* from : all) {
      for (const Ear* to : all) {
        if (from != to) {
          from->say(to->id(), "prompt " + std::to_string(round));
          from->say(to->id(), "bulk " + std::to_string(round) + std::string(random() % 100000, 'x'), Lane::bulk);
        }
      }
    }
    auto fds = connections();
    std::ranges::shuffle(fds, random);
    const std::size_t many = random() % (fds.size() + 1);
    broken += reset(std::span(fds).first(round % 3 == 0 ? many : std::min<std::size_t>(fds.size(), 2)));
    std::this_thread::sleep_for(milliseconds(random() % 30));
  }
  expect_all_reach_all(all, "the last");
  EXPECT_GT(broken, 20U);
  for (Ear* to : all) {
    for (const Ear* from : all) {
      if (from == to) {
        continue;
      }
      std::vector<std::string> prompt;
      std::vector<std::string> bulk;
      for (const std::string& one : to->heard(from->id())) {
        if (one.starts_with("prompt ")) {
          prompt.push_back(one);
        } else if (one.starts_with("bulk ")) {
          bulk.push_back(one.substr(0, one.find('x')));
        }
      }
      ASSERT_EQ(prompt.size(), static_cast<std::size_t>(kRounds)) << "of " << from->id() << " to " << to->id();
      ASSERT_EQ(bulk.size(), static_cast<std::size_t>(kRounds));
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_EQ(prompt[static_cast<std::size_t>(round)], "prompt " + std::to_string(round));
        EXPECT_EQ(bulk[static_cast<std::size_t>(round)], "bulk " + std::to_string(round));
      }
      EXPECT_EQ(count_of(*to, from->id(), "ended") + count_of(*to, from->id(), "lost"), 0U);
    }
  }
}

TEST_F(TcpProcesses, AFarewellComesBehindAllThatWasSaid) {
  start(2);
  for (int round = 0; round < 20; ++round) {
    at(0).say(1, std::string(300000, 'x'), Lane::bulk);
  }
  at(0).say(1, "last");
  at(0)->enter(4);
  at(0)->count(19);
  at(0).stop();
  EXPECT_TRUE(at(1).wait_for(0, "ended"));
  EXPECT_EQ(at(1).heard(0).size(), 22U);
  EXPECT_EQ(at(1).heard(0).back(), "ended");
  EXPECT_EQ(at(1).end_of(0), std::pair(4U, std::uint64_t{19}));
}

TEST_F(TcpProcesses, WhoTrustsResetsTakesThemForEnds) {
  start(2);
  at(0)->trust_resets();
  expect_all_reach_all({&at(0), &at(1)}, "hello");
  EXPECT_GT(reset(connections()), 0U);
  EXPECT_TRUE(at(0).wait_for(1, "ended"));
  EXPECT_TRUE(at(1).wait_for(0, "lost")) << "the other one does not trust resets, and finds no process";
  EXPECT_EQ(count_of(at(1), 0, "ended"), 0U);
}

// A process that is known to have ended is not reached again; the others are, whatever it said.
TEST_F(TcpProcesses, ResetsAroundAnEnd) {
  for (int round = 0; round < 5; ++round) {
    all_.clear();
    std::filesystem::remove(file_);  // another program may have taken a port of the last round, and would be asked
    start(3);
    expect_all_reach_all({&at(0), &at(1), &at(2)}, "hello");
    EXPECT_GT(reset(connections()), 0U);
    std::this_thread::sleep_for(milliseconds(40 * round));
    at(1).stop();
    expect_all_reach_all({&at(0), &at(2)}, "again");
    EXPECT_EQ(count_of(at(0), 2, "ended") + count_of(at(2), 0, "ended"), 0U);
    expect_world({&at(0), &at(2)}, 2);
  }
}

}  // namespace
}  // namespace gradwire::test
