// Tests processes that see each other end: children of this one, which are killed, stopped, or leave children of their
// own.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <thread>

#include "transport/witness/witnesses.hpp"

namespace gradwire::test {
namespace {

using ::testing::IsEmpty;
using transport::witness::System;
using transport::witness::Witnesses;
using Ends = std::vector<transport::tcp::EndOfProcess>;

constexpr std::uint64_t kNonce = 77;

// Returns a system that does not let this process watch others, as in some containers.
System blind() {
  System system = System::real();
  system.watch = [](pid_t) { return transport::tcp::Socket(); };
  return system;
}

// Returns a system on which this process cannot even see the process's number.
System invisible() {
  System system = System::real();
  system.peer = [real = system.peer](const transport::tcp::Socket& socket) {
    auto peer = real(socket);
    if (peer) {
      peer->process = 0;
    }
    return peer;
  };
  return system;
}

class WitnessesOfChildren : public ::testing::TestWithParam<System (*)()> {
 protected:
  // Makes a child that announces itself as process 7, has entered world 3, where step 41 counts, and then calls `then`.
  pid_t make_child(const std::function<void()>& then) {
    const pid_t child = fork();
    if (child == 0) {
      Witnesses own(1);
      own.begin(7);
      own.page()->enter(3);
      own.page()->count(41);
      std::byte done{own.announce(witness_.name(), kNonce) ? std::byte{1} : std::byte{0}};
      static_cast<void>(!write(pipe_[1], &done, 1));
      then();
      _exit(0);
    }
    std::byte done{};
    EXPECT_EQ(read(pipe_[0], &done, 1), 1);
    EXPECT_EQ(done, std::byte{1});
    return child;
  }
  Ends hear(std::chrono::milliseconds wait) {
    const auto until = transport::tcp::Clock::now() + wait;
    for (;;) {
      std::vector<pollfd> polled;
      witness_.list(polled);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - transport::tcp::Clock::now());
      poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      witness_.look(polled);
      Ends ends = witness_.take_ends();
      if (!ends.empty() || left.count() <= 0) {
        return ends;
      }
    }
  }
  static void end(pid_t child) {
    kill(child, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
  }
  void expect_end(const Ends& ends) {
    ASSERT_EQ(ends.size(), 1U);
    EXPECT_EQ(ends[0].who, 7U);
    EXPECT_EQ(ends[0].epoch, 3U);
    EXPECT_EQ(ends[0].step, 41U);
  }

  void SetUp() override { ASSERT_EQ(pipe(pipe_.data()), 0); }
  void TearDown() override {
    close(pipe_[0]);
    close(pipe_[1]);
  }

  Witnesses witness_{kNonce, GetParam()()};
  std::array<int, 2> pipe_{};
};

constexpr std::chrono::seconds kSoon{20};
constexpr std::chrono::milliseconds kMoment{300};

// Mutations tried: a process that cannot be watched is ignored; its page is not read.
TEST_P(WitnessesOfChildren, OneThatIsKilled) {
  const pid_t child = make_child([] { pause(); });
  EXPECT_THAT(hear(kMoment), IsEmpty());
  end(child);
  expect_end(hear(kSoon));
  EXPECT_THAT(hear(kMoment), IsEmpty());
}

TEST_P(WitnessesOfChildren, OneThatIsKilledBeforeAnybodyLooks) {
  end(make_child([] { pause(); }));
  expect_end(hear(kSoon));
}

TEST_P(WitnessesOfChildren, OneThatIsStoppedHasNotEnded) {
  const pid_t child = make_child([] { pause(); });
  EXPECT_THAT(hear(kMoment), IsEmpty());
  kill(child, SIGSTOP);
  EXPECT_THAT(hear(2 * kMoment), IsEmpty());
  kill(child, SIGCONT);
  EXPECT_THAT(hear(kMoment), IsEmpty());
  end(child);
  expect_end(hear(kSoon));
}

// Mutation tried, fails if processes cannot be watched: descriptors are not closed in children.
TEST_P(WitnessesOfChildren, ChildrenThatItLeavesDoNotHideItsEnd) {
  std::array<int, 2> told{};
  ASSERT_EQ(pipe(told.data()), 0);
  const pid_t child = make_child([&] {
    const pid_t grandchild = fork();
    if (grandchild != 0) {
      static_cast<void>(!write(told[1], &grandchild, sizeof(grandchild)));
    }
    pause();
  });
  pid_t grandchild = 0;
  ASSERT_EQ(read(told[0], &grandchild, sizeof(grandchild)), static_cast<ssize_t>(sizeof(grandchild)));
  EXPECT_THAT(hear(kMoment), IsEmpty());
  end(child);
  expect_end(hear(kSoon));
  EXPECT_EQ(kill(grandchild, SIGKILL), 0) << "the grandchild still lives";
  close(told[0]);
  close(told[1]);
}

std::string name_of_system(const ::testing::TestParamInfo<System (*)()>& given) {
  return given.index == 0 ? "real" : given.index == 1 ? "blind" : "invisible";
}
INSTANTIATE_TEST_SUITE_P(Systems, WitnessesOfChildren, ::testing::Values(&System::real, &blind, &invisible),
                         name_of_system);

// By the time that a process is watched, its number may belong to another process.
TEST(Witnesses, ANumberThatIsGivenAgainIsNotTakenForTheProcess) {
  System system = System::real();
  system.watch = [real = system.watch](pid_t) { return real(getpid()); };
  Witnesses witness(kNonce, system);
  {
    Witnesses gone(1);
    gone.begin(6);
    EXPECT_TRUE(gone.announce(witness.name(), kNonce));
  }
  std::vector<pollfd> polled;
  witness.list(polled);
  poll(polled.data(), polled.size(), 1000);
  witness.look(polled);
  const Ends ends = witness.take_ends();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].who, 6U);
}

System other_user() {
  System system = System::real();
  system.peer = [](const transport::tcp::Socket&) {
    return std::optional(System::Peer{.process = getpid(), .user = geteuid() + 1});
  };
  return system;
}

Ends look(Witnesses& witness) {
  std::vector<pollfd> polled;
  witness.list(polled);
  poll(polled.data(), polled.size(), 100);
  witness.look(polled);
  return witness.take_ends();
}

// Mutation tried: either side accepts any user.
TEST(Witnesses, AnotherUserIsRefusedByBothSides) {
  Witnesses strict(kNonce, other_user());
  Witnesses plain(kNonce);
  strict.begin(1);
  plain.begin(2);
  EXPECT_FALSE(strict.announce(plain.name(), kNonce));
  EXPECT_TRUE(plain.announce(strict.name(), kNonce)) << "the process cannot know that it will be refused";
  EXPECT_THAT(look(strict), IsEmpty());
  plain.close();
  EXPECT_THAT(look(strict), IsEmpty()) << "no process is watched";
}

TEST(Witnesses, WhoDoesNotKnowTheSecretIsNotWatched) {
  Witnesses witness(kNonce, blind());
  Witnesses stranger(1);
  Witnesses known(1);
  stranger.begin(5);
  known.begin(6);
  EXPECT_TRUE(stranger.announce(witness.name(), kNonce + 1));
  EXPECT_TRUE(known.announce(witness.name(), kNonce));
  EXPECT_THAT(look(witness), IsEmpty());
  stranger.close();
  EXPECT_THAT(look(witness), IsEmpty());
  known.close();
  const Ends ends = look(witness);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].who, 6U);
}

// A live process may say that it leaves, and that message may not reach all others.
TEST(Witnesses, AProcessThatLivesMayHaveEnded) {
  Witnesses witness(kNonce);
  Witnesses other(1);
  other.begin(6);
  other.page()->enter(2);
  other.page()->count(5);
  EXPECT_TRUE(other.announce(witness.name(), kNonce));
  EXPECT_THAT(look(witness), IsEmpty());
  EXPECT_FALSE(witness.own_word_of(6));
  EXPECT_FALSE(witness.own_word_of(7));
  other.page()->end();
  ASSERT_TRUE(witness.own_word_of(6));
  EXPECT_EQ(witness.own_word_of(6)->epoch, 2U);
  EXPECT_EQ(witness.own_word_of(6)->step, 5U);
}

// Descriptors stay few if processes can be watched: neither side keeps a connection.
TEST(Witnesses, NoConnectionIsKeptWithoutNeed) {
  Witnesses witness(kNonce);
  Witnesses other(1);
  other.begin(6);
  EXPECT_TRUE(other.announce(witness.name(), kNonce));
  std::vector<pollfd> before;
  other.list(before);
  EXPECT_EQ(before.size(), 2U);
  EXPECT_THAT(look(witness), IsEmpty());
  EXPECT_THAT(look(other), IsEmpty());
  std::vector<pollfd> after;
  other.list(after);
  EXPECT_EQ(after.size(), 1U) << "only its listener is left";
}

}  // namespace
}  // namespace gradwire::test
