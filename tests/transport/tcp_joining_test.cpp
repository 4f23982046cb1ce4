// Tests processes that join others over TCP, while some of these end, are silent or cannot be reached.
#include "tests/transport/tcp_job.hpp"

namespace gradwire::test {
namespace {

TEST_F(TcpProcesses, OneJoins) {
  start(3);
  struct stat status {};
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  Ear& joiner = join();
  EXPECT_EQ(joiner.id(), 3U);
  EXPECT_TRUE(joiner->joined());
  EXPECT_THAT(joiner->all(), ElementsAre(0, 1, 2));
  EXPECT_THAT(joiner->newcomers(), IsEmpty());
  EXPECT_THAT(joiner->describe(1), ::testing::StartsWith("rank 1 (process "));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at(i).wait_for(3, "came"));
    EXPECT_THAT(at(i)->newcomers(), ElementsAre(3));
    EXPECT_THAT(at(i)->all(), ElementsAre(0, 1, 2));
    EXPECT_THAT(at(i)->describe(3), ::testing::MatchesRegex("process [0-9]+ on host .+, which joined"));
  }
  expect_all_reach_all({&at(0), &at(1), &at(2), &at(3)}, "again");
  EXPECT_EQ(at(0).heard(3).front(), "came");
  expect_world({&at(0), &at(2), &at(3)}, 5);
  joiner.stop();
  EXPECT_TRUE(at(0).wait_for(3, "ended"));
  EXPECT_THAT(at(0)->newcomers(), ElementsAre(3));
  expect_world({&at(0), &at(1), &at(2)}, 6);
}

TEST_F(TcpProcesses, SeveralJoinAtOnce) {
  start(3);
  constexpr int kMany = 6;
  std::vector<std::shared_ptr<Processes>> made(kMany);
  in_parallel(kMany, [&](int i) { made[static_cast<std::size_t>(i)] = join_plain(); });
  for (auto& one : made) {
    all_.push_back(std::make_unique<Ear>(std::move(one)));
  }
  std::vector<Ear*> ears;
  std::set<Id> ids;
  for (const auto& one : all_) {
    ears.push_back(one.get());
    ids.insert(one->id());
  }
  EXPECT_EQ(ids.size(), 3U + kMany);
  expect_all_reach_all(ears, "hello");
  std::ranges::sort(ears, {}, &Ear::id);
  for (std::size_t i = 3; i < ears.size(); ++i) {
    EXPECT_EQ(ears[i]->operator->()->newcomers().size(), static_cast<std::size_t>(kMany) - 1);
    for (std::size_t k = 3; k < ears.size(); ++k) {
      if (i != k) {
        EXPECT_EQ(ears[i]->heard(ears[k]->id()).front(), "came");
      }
    }
  }
  expect_world(ears, 2);
  EXPECT_EQ(lines().size(), 3U + kMany);
}

TEST_F(TcpProcesses, OneJoinsByThoseThatJoined) {
  start(2);
  Ear& second = join();
  at(0).stop();
  at(1).stop();
  EXPECT_TRUE(second.wait_for(0, "ended"));
  EXPECT_TRUE(second.wait_for(1, "ended"));
  Ear& third = join();
  EXPECT_EQ(third.id(), 3U);
  EXPECT_THAT(third->all(), ElementsAre(0, 1));
  EXPECT_THAT(third->newcomers(), ElementsAre(2));
  EXPECT_TRUE(third.wait_for(0, "ended")) << "the joiner cannot know otherwise that they have";
  EXPECT_TRUE(third.wait_for(1, "ended"));
  EXPECT_TRUE(third.wait_for(2, "came"));
  EXPECT_TRUE(second.wait_for(3, "came"));
  expect_world({&second, &third}, 9);
}

// Mutation tried: a joiner remembers only the processes of the start.
TEST_F(TcpProcesses, WhoJoinsHearsOfThoseThatJoinedAndEnded) {
  start(2);
  Ear& second = join();
  EXPECT_TRUE(at(0).wait_for(2, "came"));
  EXPECT_TRUE(at(1).wait_for(2, "came"));
  second.stop();
  EXPECT_TRUE(at(0).wait_for(2, "ended"));
  EXPECT_TRUE(at(1).wait_for(2, "ended"));
  Ear& third = join();
  EXPECT_EQ(third.id(), 3U);
  EXPECT_TRUE(third.wait_for(2, "ended"));
  EXPECT_THAT(third.heard(2), ElementsAre("came", "ended"));
  EXPECT_THAT(third->newcomers(), ElementsAre(2));
  EXPECT_THAT(third->describe(2), HasSubstr("which joined"));
}

// Takes over a port once its owner is gone; accepts connections there and says nothing.
transport::tcp::Socket silent_at(const std::string& address, int port) {
  sockaddr_storage place{};
  const bool is_v6 = address.find(':') != std::string::npos;
  auto& v4 = reinterpret_cast<sockaddr_in&>(place);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(place);
  place.ss_family = is_v6 ? AF_INET6 : AF_INET;
  (is_v6 ? v6.sin6_port : v4.sin_port) = htons(static_cast<std::uint16_t>(port));
  void* const bytes = is_v6 ? static_cast<void*>(&v6.sin6_addr) : &v4.sin_addr;
  EXPECT_EQ(inet_pton(place.ss_family, address.c_str(), bytes), 1) << address;
  transport::tcp::Socket socket(::socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const auto until = Clock::now() + seconds(5);
  int bound = -1;
  while ((bound = bind(socket.fd(), reinterpret_cast<sockaddr*>(&place), is_v6 ? sizeof(v6) : sizeof(v4))) != 0 &&
         Clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(bound, 0);
  EXPECT_EQ(listen(socket.fd(), 8), 0);
  return socket;
}

// The port stays in the file for ever. Mutation tried: a joiner asks the oldest process first.
TEST_F(TcpProcesses, APortOfOneThatEndedMayBeSomebodyElses) {
  start(2);
  const auto processes = lines();
  at(0).stop();
  EXPECT_TRUE(at(1).wait_for(0, "ended"));
  std::vector<transport::tcp::Socket> others;
  for (const auto& [address, port] : processes[0].card.places) {
    others.push_back(silent_at(address, port));
  }
  const auto begin = Clock::now();
  Ear& joiner = join();
  EXPECT_LT(Clock::now() - begin, seconds(4)) << "it waited for a stranger";
  EXPECT_TRUE(joiner.wait_for(0, "ended"));
  EXPECT_TRUE(at(1).wait_for(joiner.id(), "came"));
}

// Mutation tried: the next id is the number of present processes.
TEST_F(TcpProcesses, NoIdIsGivenTwice) {
  start(2);
  std::set<Id> ids;
  for (int i = 0; i < 4; ++i) {
    Ear& joiner = join();
    EXPECT_TRUE(at(0).wait_for(joiner.id(), "came"));
    EXPECT_TRUE(ids.insert(joiner.id()).second) << joiner.id();
    joiner.stop();
    EXPECT_TRUE(at(0).wait_for(joiner.id(), "ended"));
  }
  EXPECT_EQ(*ids.begin(), 2U);
}

TEST_F(TcpProcesses, JoinWhileAnotherEnds) {
  for (int round = 0; round < 6; ++round) {
    all_.clear();
    std::filesystem::remove(file_);  // another program may have taken a port of the last round, and would be asked
    start(4);
    std::jthread death([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(400 * round));
      at(static_cast<std::size_t>(round % 4)).stop();
    });
    const auto made = join_plain();
    death.join();
    all_.push_back(std::make_unique<Ear>(made));
    const auto dead = static_cast<Id>(round % 4);
    std::vector<Ear*> left;
    for (const auto& one : all_) {
      if (one->id() != dead) {
        left.push_back(one.get());
        EXPECT_TRUE(one->wait_for(dead, "ended")) << one->id() << " of round " << round;
      }
    }
    expect_all_reach_all(left, "left");
    expect_world(left, 2);
  }
}

// Three at a time join while others end, including ones that have just joined. Mutation tried: a process that does not
// answer counts as ended.
TEST_F(TcpProcesses, ManyJoinWhileManyEnd) {
  start(4);
  std::mt19937 random(7);
  std::vector<Ear*> left;
  for (const auto& one : all_) {
    left.push_back(one.get());
  }
  for (std::uint32_t round = 1; round <= 12; ++round) {
    std::vector<Ear*> dying;
    for (int i = 0; i < 2 && left.size() > 2; ++i) {
      const auto at = left.begin() + static_cast<std::ptrdiff_t>(random() % left.size());
      dying.push_back(*at);
      left.erase(at);
    }
    std::vector<std::shared_ptr<Processes>> made(3);
    const int delay = static_cast<int>(random() % 3000);
    std::jthread death([&] {
      for (Ear* one : dying) {
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
        one->stop();
      }
    });
    in_parallel(3, [&](int i) { made[static_cast<std::size_t>(i)] = join_plain(); });
    death.join();
    for (auto& one : made) {
      all_.push_back(std::make_unique<Ear>(std::move(one)));
      left.push_back(all_.back().get());
    }
    std::ranges::sort(left, {}, &Ear::id);
    expect_all_reach_all(left, "round " + std::to_string(round));
    expect_world(left, round);
  }
}

TEST_F(TcpProcesses, AJoinerThatDiesHalfwayIsForgotten) {
  start(2);
  const auto processes = lines();
  { const Half died = begin_to_join(processes[0], transport::tcp::kFirstToken + 5); }
  {  // admitted by one of two
    Half died = begin_to_join(processes[0], transport::tcp::kFirstToken + 6);
    const Acquaintance who{.id = 2, .state = {}, .card = processes[0].card, .name = "nobody"};
    EXPECT_TRUE(transport::tcp::write_message(died.prompt, who.to_text(), Clock::now() + seconds(5)));
    EXPECT_EQ(transport::tcp::read_message(died.prompt, Clock::now() + seconds(5)), "admitted");
  }
  Ear& joiner = join();
  EXPECT_GE(joiner.id(), 2U);
  EXPECT_TRUE(at(0).wait_for(joiner.id(), "came"));
  EXPECT_TRUE(at(1).wait_for(joiner.id(), "came"));
  if (joiner.id() != 2) {
    EXPECT_THAT(at(0).heard(2), IsEmpty()) << "only process 0 has heard of it";
  }
  EXPECT_THAT(at(0)->newcomers(), ElementsAre(joiner.id()));
  expect_world({&at(0), &at(1), &joiner}, 2);
}

// Mutations tried: a turn never ends, then nobody joins any more; all joiners have the door at once.
TEST_F(TcpProcesses, ASilentJoinerLosesItsTurn) {
  start(2);
  const auto processes = lines();
  const Half silent = begin_to_join(processes[0], transport::tcp::kFirstToken + 5);
  const auto begin = Clock::now();
  Ear& joiner = join();
  EXPECT_GT(Clock::now() - begin, seconds(3)) << "it had to wait for the silent joiner";
  EXPECT_LT(Clock::now() - begin, seconds(15));
  expect_world({&at(0), &at(1), &joiner}, 2);
}

// If a process does not answer, joiners wait for it and name it; later joiners can still join the others.
TEST_F(TcpProcesses, OneThatDoesNotAnswerIsNamed) {
  start(2);
  const auto processes = lines();
  const Half holds = begin_to_join(processes[1], transport::tcp::kFirstToken + 5);
  const Error error = error_of([&] { (void)join_plain(milliseconds(700)); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("rank 1"), HasSubstr(file_)));
}

// Mutation tried: processes tell about a left out one as about any other.
TEST_F(TcpProcesses, OneThatWasLeftOutKeepsNobodyFromJoining) {
  start(3);
  const auto processes = lines();
  const Half holds = begin_to_join(processes[1], transport::tcp::kFirstToken + 5);  // then it stops
  at(0)->leave_out(1);
  at(2)->leave_out(1);
  Ear& joiner = join(milliseconds(2500));  // shorter than the turn of a silent joiner
  EXPECT_EQ(joiner.id(), 3U);
  EXPECT_TRUE(at(0).wait_for(3, "came"));
  EXPECT_TRUE(at(2).wait_for(3, "came"));
  EXPECT_THAT(at(1)->newcomers(), IsEmpty());
}

// A process of the test, which tells joiners the text that it was given.
class Teller {
 public:
  Teller(transport::tcp::Listening at, Id id, std::vector<Acquaintance> known)
      : known_(std::move(known)),
        door_({.turn = [this] { return transport::tcp::Turn{.start = 3, .highest = 2, .known = known_}; },
               .admit = [this](transport::tcp::Door::Guest guest) { admit(std::move(guest)); }}),
        reception_(std::move(at.listeners), {.nonce = at.card.nonce, .rank = id}, transport::tcp::kEndOfTokens, nullptr,
                   {.came = [this](transport::tcp::Accepted accepted) { door_.knock(std::move(accepted)); },
                    .made = [](transport::tcp::Dialer::Made) {}}) {}
  [[nodiscard]] int admitted() const { return admitted_; }

 private:
  void admit(transport::tcp::Door::Guest guest) {
    ++admitted_;
    static_cast<void>(
        transport::tcp::write_message(guest.prompt, std::string(transport::tcp::kAdmitted), Clock::now() + seconds(1)));
    guests_.push_back(std::move(guest));
  }

  std::vector<Acquaintance> known_;
  std::vector<transport::tcp::Door::Guest> guests_;
  std::atomic<int> admitted_ = 0;
  transport::tcp::Door door_;
  transport::tcp::Reception reception_;
};

// The connection of two processes broke, and the job may go on without one of them, which has not ended. A joiner still
// needs it, unless another process knows that it has ended. Mutations tried: the joiner skips it; the joiner does not
// ask the other process.
TEST_F(TcpProcesses, OneThatOthersCannotReachIsNamed) {
  using State = Acquaintance::State;
  for (const auto& [last, silent] : std::array{std::pair(State::unreachable, true),
                                               std::pair(State::unreachable, false), std::pair(State::ended, false)}) {
    const auto loopback = transport::tcp::addresses_for("", true);
    std::array at{transport::tcp::listen_on(loopback, ""), transport::tcp::listen_on(loopback, ""),
                  transport::tcp::listen_on(loopback, "")};
    std::vector<Acquaintance> known;
    for (Id id = 0; id < 3; ++id) {
      known.push_back({.id = id, .state = State::alive, .card = at.at(id).card, .name = "rank " + std::to_string(id)});
    }
    known[1].state = State::unreachable;
    if (!silent) {
      at[1].listeners.clear();
    }
    transport::tcp::write_join_file(file_, {known[0]});
    const Teller zero(std::move(at[0]), 0, known);
    known[1].state = last;
    const Teller two(std::move(at[2]), 2, known);
    if (last == State::ended) {
      EXPECT_EQ(join_plain()->self(), 3U);
    } else {
      const Error error = error_of([&] { (void)join_plain(milliseconds(700)); });
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 does not answer"));
    }
    EXPECT_EQ(zero.admitted() + two.admitted(), last == State::ended ? 2 : 0);
  }
}

// A process that does not listen to the others yet still tells about a joiner whose attempt failed; the others know of
// none. Mutation tried: the new joiner tries to reach it, too.
TEST_F(TcpProcesses, OneThatOnlyTheLastTellsOfHasNotJoined) {
  const auto loopback = transport::tcp::addresses_for("", true);
  std::array at{transport::tcp::listen_on(loopback, ""), transport::tcp::listen_on(loopback, ""),
                transport::tcp::listen_on(loopback, "")};
  std::vector<Acquaintance> known;
  for (Id id = 0; id < 3; ++id) {
    known.push_back({.id = id, .state = {}, .card = at.at(id).card, .name = "rank " + std::to_string(id)});
  }
  at[2].listeners.clear();
  transport::tcp::write_join_file(file_, {known[0]});
  const Teller zero(std::move(at[0]), 0, {known[0], known[1]});
  const Teller one(std::move(at[1]), 1, known);
  EXPECT_EQ(join_plain(seconds(5))->self(), 3U);
  EXPECT_EQ(zero.admitted() + one.admitted(), 2);
}

// Mutation tried: the joiner says nothing while it waits for its turn.
TEST_F(TcpProcesses, WhoWaitsToJoinSaysSo) {
  start(1);
  const HeardLog log;
  const Half first = begin_to_join(lines().at(0), transport::tcp::kFirstToken + 5);  // it has its turn for 5 s
  EXPECT_EQ(join(seconds(20), seconds(1)).id(), 1U);
  EXPECT_THAT(HeardLog::all(), ElementsAre(::testing::AllOf(HasSubstr("waits to join"), HasSubstr("process 0")),
                                           ::testing::AllOf(HasSubstr("listening for processes of the job at "),
                                                            HasSubstr("connections are not encrypted"))));
}

// Mutations tried: the first process that ends removes the file; nobody does.
TEST_F(TcpProcesses, TheLastOneToEndRemovesTheJoinFile) {
  start(2);
  join();
  while (!all_.empty()) {
    EXPECT_TRUE(std::filesystem::exists(file_)) << all_.size();
    all_.erase(all_.begin());
  }
  EXPECT_FALSE(std::filesystem::exists(file_));
  start(3);
  in_parallel(3, [&](int rank) { all_[static_cast<std::size_t>(rank)].reset(); });  // all at once
  EXPECT_FALSE(std::filesystem::exists(file_));
  all_.clear();
}

TEST_F(TcpProcesses, TheJoinFileOfAnotherJobStays) {
  start(1);
  std::filesystem::rename(file_, folder_ / "moved");
  start(1);
  all_.erase(all_.begin());
  EXPECT_TRUE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace gradwire::test
