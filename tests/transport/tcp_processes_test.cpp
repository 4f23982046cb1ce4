// Processes over TCP, as threads of this one: messages, worlds, and those that join.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/log.hpp"
#include "gradwire/version.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/exchange.hpp"
#include "tests/transport/tcp_world.hpp"
#include "transport/tcp/tcp_door.hpp"
#include "transport/tcp/tcp_introduction.hpp"
#include "transport/tcp/tcp_join_file.hpp"
#include "transport/tcp/tcp_processes.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using transport::tcp::Acquaintance;
using transport::tcp::Clock;
using transport::tcp::Socket;
using Id = Processes::Id;
using Lane = Processes::Lane;

// A process with the thread that hears for it, and what that has heard.
class Ear {
 public:
  explicit Ear(std::shared_ptr<Processes> processes)
      : processes_(std::move(processes)), thread_([this] { listen(); }) {}
  ~Ear() {
    stop();
    thread_.join();
  }
  Ear(const Ear&) = delete;
  Ear& operator=(const Ear&) = delete;

  Processes* operator->() const { return processes_.get(); }
  [[nodiscard]] Id id() const { return processes_->self(); }

  /// It ends, as others see it.
  void stop() {
    stopped_ = true;
    processes_->end();
    processes_->wake();
  }

  bool wait_until(const std::function<bool()>& what, seconds limit = seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, what);
  }
  /// What `from` did, in order: "came", "ended", or a message.
  [[nodiscard]] bool wait_for(Id from, const std::string& what) {
    return wait_until([&] { return std::ranges::count(heard_[from], what) > 0; });
  }
  [[nodiscard]] std::vector<std::string> heard(Id from) {
    const std::lock_guard lock(mutex_);
    return heard_[from];
  }

  void say(Id to, const std::string& what, Lane lane = Lane::prompt) {
    processes_->send(to, std::as_bytes(std::span(what)), lane);
  }
  [[nodiscard]] std::shared_ptr<Transport> connect(const std::vector<Id>& members, std::uint32_t epoch,
                                                   milliseconds timeout = seconds(20)) {
    return processes_->connect(members, epoch, timeout);
  }

 private:
  void listen() {
    while (!stopped_) {
      for (const Processes::Heard& one : processes_->hear(milliseconds(50))) {
        const std::lock_guard lock(mutex_);
        heard_[one.from].push_back(
            one.came    ? "came"
            : one.ended ? "ended"
                        : std::string(reinterpret_cast<const char*>(one.message.data()), one.message.size()));
        changed_.notify_all();
      }
    }
  }

  std::shared_ptr<Processes> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Id, std::vector<std::string>> heard_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

class TcpProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gradwire_join_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    file_ = (folder_ / "join").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void start(int count) { start(count, file_); }
  void start(int count, const std::string& file) {
    MemoryStore store;
    std::vector<std::shared_ptr<Processes>> made(static_cast<std::size_t>(count));
    in_parallel(count, [&](int rank) {
      made[static_cast<std::size_t>(rank)] = transport::make_tcp_processes(
          store.rendezvous(), {.rank = rank, .world_size = count, .interface = "lo", .timeout = seconds(20)}, file);
    });
    for (auto& one : made) {
      all_.push_back(std::make_unique<Ear>(std::move(one)));
    }
  }
  [[nodiscard]] std::shared_ptr<Processes> join_plain(milliseconds timeout = seconds(20),
                                                      milliseconds first_word = seconds(5)) const {
    return transport::join_tcp_processes(
        {.join_file = file_, .interface = "lo", .timeout = timeout, .first_word = first_word});
  }
  Ear& join(milliseconds timeout = seconds(20), milliseconds first_word = seconds(5)) {
    all_.push_back(std::make_unique<Ear>(join_plain(timeout, first_word)));
    return *all_.back();
  }
  Ear& at(std::size_t index) { return *all_.at(index); }

  static void in_parallel(int count, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::exception_ptr failure;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }

  /// A world of these, in which each sends to each.
  void expect_world(const std::vector<Ear*>& members, std::uint32_t epoch) {
    std::vector<Id> ids;
    for (const Ear* one : members) {
      ids.push_back(one->id());
    }
    in_parallel(static_cast<int>(members.size()), [&](int rank) {
      const auto transport = members[static_cast<std::size_t>(rank)]->connect(ids, epoch);
      EXPECT_EQ(transport->rank(), rank);
      ASSERT_EQ(transport->world_size(), static_cast<int>(ids.size()));
      Batch batch(*transport);
      for (int peer = 0; peer < transport->world_size(); ++peer) {
        if (peer != rank) {
          batch.receive(peer, 7, pattern(peer, rank, epoch, 3000));
          batch.send(peer, 7, pattern(rank, peer, epoch, 3000));
        }
      }
      batch.wait();
      barrier(*transport, 8);
    });
  }
  /// That each of these hears each other one.
  static void expect_all_reach_all(const std::vector<Ear*>& ears, const std::string& word) {
    for (Ear* from : ears) {
      for (const Ear* to : ears) {
        if (from != to) {
          from->say(to->id(), word);
          from->say(to->id(), word + " in bulk", Lane::bulk);
        }
      }
    }
    for (Ear* to : ears) {
      for (const Ear* from : ears) {
        if (from != to) {
          EXPECT_TRUE(to->wait_for(from->id(), word)) << to->id() << " hears nothing of " << from->id();
          EXPECT_TRUE(to->wait_for(from->id(), word + " in bulk"));
        }
      }
    }
  }
  [[nodiscard]] std::vector<Acquaintance> lines() const { return transport::tcp::read_join_file(file_); }

  const Watchdog watchdog_{::testing::UnitTest::GetInstance()->current_test_info()->name()};
  std::filesystem::path folder_;
  std::string file_;
  std::vector<std::unique_ptr<Ear>> all_;
};

TEST_F(TcpProcesses, WorldsAreMadeOfThoseThatAreLeft) {
  start(3);
  EXPECT_THAT(at(1)->all(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(at(1)->joined());
  EXPECT_THAT(at(1)->newcomers(), IsEmpty());
  EXPECT_THAT(at(1)->describe(2), ::testing::MatchesRegex("rank 2 \\(process [0-9]+ on host .+\\)"));
  expect_all_reach_all({&at(0), &at(1), &at(2)}, "hello");
  expect_world({&at(0), &at(1), &at(2)}, 1);
  at(1).stop();
  EXPECT_TRUE(at(0).wait_for(1, "ended"));
  EXPECT_TRUE(at(2).wait_for(1, "ended"));
  expect_world({&at(0), &at(2)}, 2);
  EXPECT_EQ(at(0).heard(1).back(), "ended");
}

TEST_F(TcpProcesses, LongMessagesComeWhole) {
  start(2);
  const std::string longest(1 << 20, 'x');
  for (int i = 0; i < 4; ++i) {
    at(0).say(1, longest, Lane::bulk);
  }
  at(0).say(1, "prompt");
  at(0).say(1, "last", Lane::bulk);
  EXPECT_TRUE(at(1).wait_for(0, "last"));
  EXPECT_TRUE(at(1).wait_for(0, "prompt"));
  EXPECT_EQ(std::ranges::count(at(1).heard(0), longest), 4);
  EXPECT_EQ(at(0)->unsent(1, Lane::bulk), 0U);
}

// Mutation tried: connect() that does not look at who has ended waits for its timeout.
TEST_F(TcpProcesses, AWorldIsGivenUpOnceAMemberHasEnded) {
  start(3);
  std::jthread death([&] {
    std::this_thread::sleep_for(milliseconds(200));
    at(2).stop();
  });
  const auto begin = Clock::now();
  in_parallel(2, [&](int rank) {
    const Error error = error_of([&] { (void)at(static_cast<std::size_t>(rank)).connect({0, 1, 2}, 1, seconds(60)); });
    EXPECT_EQ(error.code(), ErrorCode::transport) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  });
  EXPECT_LT(Clock::now() - begin, seconds(5));
  death.join();
  expect_world({&at(0), &at(1)}, 2);
}

// It waits for a connection of a member which has left its address, and then ended.
TEST_F(TcpProcesses, AWorldIsGivenUpWhereAMemberEndsHalfway) {
  start(2);
  at(1).stop();
  const auto begin = Clock::now();
  const Error error = error_of([&] { (void)at(0).connect({0, 1}, 1, seconds(60)); });
  EXPECT_EQ(error.code(), ErrorCode::transport) << error.what();
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST_F(TcpProcesses, AWorldIsGivenUpOnceANewerOneBegins) {
  start(2);
  std::jthread older([&] {
    const Error error = error_of([&] { (void)at(0).connect({0, 1}, 1, seconds(60)); });
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
  });
  std::this_thread::sleep_for(milliseconds(100));
  expect_world({&at(0), &at(1)}, 2);
  older.join();
}

TEST_F(TcpProcesses, AWorldThatOneDoesNotComeToTimesOut) {
  start(2);
  const Error error = error_of([&] { (void)at(0).connect({0, 1}, 1, milliseconds(300)); });
  EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  EXPECT_THAT(error.what(),
              ::testing::ContainsRegex("a new world: rank 1 \\(process [0-9]+ on host .+\\) does not come"));
  EXPECT_EQ(error_of([&] { (void)at(0).connect({1}, 2); }).code(), ErrorCode::invalid_argument);
}

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
  EXPECT_TRUE(third.wait_for(0, "ended")) << "it cannot know otherwise that they have";
  EXPECT_TRUE(third.wait_for(1, "ended"));
  EXPECT_TRUE(third.wait_for(2, "came"));
  EXPECT_TRUE(second.wait_for(3, "came"));
  expect_world({&second, &third}, 9);
}

// Mutation tried: a joiner that keeps only those of the start.
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

// Mutation tried: the next id from the number of those that are there.
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

// Three at a time join while others end, those that have just joined, too. Mutation tried: who does not answer is taken
// for ended.
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

// Both lanes to the process, as a joiner that has its turn.
struct Half {
  Socket prompt;
  Socket bulk;
  std::optional<std::string> turn;
};
Half begin_to_join(const Acquaintance& process, std::uint32_t token) {
  Half half;
  std::string why;
  const auto until = Clock::now() + seconds(10);
  half.prompt = process.card.reach(until, {.rank = token, .control = 1}, process.id, why);
  half.bulk = process.card.reach(until, {.rank = token, .control = 0}, process.id, why);
  EXPECT_TRUE(half.prompt.valid() && half.bulk.valid()) << why;
  half.turn = transport::tcp::read_message(half.prompt, until);
  EXPECT_TRUE(half.turn);
  return half;
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
    EXPECT_THAT(at(0).heard(2), IsEmpty()) << "nobody has heard of it but process 0";
  }
  EXPECT_THAT(at(0)->newcomers(), ElementsAre(joiner.id()));
  expect_world({&at(0), &at(1), &joiner}, 2);
}

// Mutations tried: a turn without an end, then nobody joins any more; a door that has all who come at once.
TEST_F(TcpProcesses, ASilentJoinerLosesItsTurn) {
  start(2);
  const auto processes = lines();
  const Half silent = begin_to_join(processes[0], transport::tcp::kFirstToken + 5);
  const auto begin = Clock::now();
  Ear& joiner = join();
  EXPECT_GT(Clock::now() - begin, seconds(3)) << "it was not alone";
  EXPECT_LT(Clock::now() - begin, seconds(15));
  expect_world({&at(0), &at(1), &joiner}, 2);
}

// A process that does not answer has all the others wait, and is named; the others can still be joined later.
TEST_F(TcpProcesses, OneThatDoesNotAnswerIsNamed) {
  start(2);
  const auto processes = lines();
  const Half holds = begin_to_join(processes[1], transport::tcp::kFirstToken + 5);
  const Error error = error_of([&] { (void)join_plain(milliseconds(700)); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("rank 1"), HasSubstr(file_)));
}

// A process of the test's own, which tells those that join what it is given.
class Teller {
 public:
  Teller(transport::tcp::Listening at, Id id, std::vector<Acquaintance> known)
      : known_(std::move(known)),
        door_(std::move(at.listeners), {.nonce = at.card.nonce, .rank = id},
              {.turn = [this] { return transport::tcp::Turn{.start = 3, .highest = 2, .known = known_}; },
               .admit = [this](transport::tcp::Door::Guest guest) { admit(std::move(guest)); }}) {}
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
};

// The connection of two processes broke, and the job may go on without one of them, which has not ended: who joins
// needs it all the same, unless another one knows that it has ended. Mutations tried: who joins passes it over; who
// joins does not ask the other one.
TEST_F(TcpProcesses, OneThatOthersCannotReachIsNamed) {
  using State = Acquaintance::State;
  for (const auto& [last, silent] : std::array{std::pair(State::unreachable, true),
                                               std::pair(State::unreachable, false), std::pair(State::ended, false)}) {
    std::array at{transport::tcp::listen_on({"127.0.0.1"}, ""), transport::tcp::listen_on({"127.0.0.1"}, ""),
                  transport::tcp::listen_on({"127.0.0.1"}, "")};
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

TEST_F(TcpProcesses, StrangersAreDroppedSilently) {
  start(2);
  const auto processes = lines();
  std::vector<Socket> strangers;
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(), std::string(200, '\xff')}) {
    std::string why;
    const auto& place = processes[0].card.places.at(0);
    strangers.push_back(transport::tcp::connect_until(place.address, place.port, Clock::now() + seconds(5), why));
    ASSERT_TRUE(strangers.back().valid()) << why;
    EXPECT_TRUE(transport::tcp::write_until(strangers.back(), std::as_bytes(std::span(said)), Clock::now()));
  }
  // Who knows the secret, and says what no joiner would.
  const Half odd = begin_to_join(processes[0], transport::tcp::kFirstToken + 9);
  EXPECT_TRUE(transport::tcp::write_message(odd.prompt, "alive -7 what\nis this", Clock::now() + seconds(5)));
  EXPECT_FALSE(transport::tcp::read_message(odd.prompt, Clock::now() + seconds(10)));
  // An id that is taken, one far beyond those that are, a process that has ended already, one that cannot be reached,
  // and one whose name would be two lines.
  using State = Acquaintance::State;
  const transport::tcp::Card& card = processes[0].card;
  for (const Acquaintance& who : {Acquaintance{.id = 1, .state = {}, .card = card, .name = "twice"},
                                  Acquaintance{.id = 5000, .state = {}, .card = card, .name = "far"},
                                  Acquaintance{.id = 2, .state = State::ended, .card = card, .name = "ended"},
                                  Acquaintance{.id = 2, .state = {}, .card = {}, .name = "nowhere"},
                                  Acquaintance{.id = 2, .state = {}, .card = card, .name = "two\nlines"}}) {
    const Half guest = begin_to_join(processes[0], transport::tcp::kFirstToken + 10);
    EXPECT_TRUE(transport::tcp::write_message(guest.prompt, who.to_text(), Clock::now() + seconds(5)));
    EXPECT_FALSE(transport::tcp::read_message(guest.prompt, Clock::now() + seconds(10))) << who.name;
  }

  Ear& joiner = join();
  expect_world({&at(0), &at(1), &joiner}, 2);
  EXPECT_THAT(at(0)->newcomers(), ElementsAre(joiner.id()));
}

// What is logged meanwhile.
class HeardLog {
 public:
  HeardLog() {
    lines().clear();
    set_log_sink([](LogLevel /*level*/, std::string_view line) {
      const std::lock_guard lock(mutex());
      lines().emplace_back(line);
    });
  }
  ~HeardLog() { set_log_sink(nullptr); }
  HeardLog(const HeardLog&) = delete;
  HeardLog& operator=(const HeardLog&) = delete;
  [[nodiscard]] static std::vector<std::string> all() {
    const std::lock_guard lock(mutex());
    return lines();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex made;
    return made;
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> made;
    return made;
  }
};

// Mutation tried: a warning at each try.
TEST_F(TcpProcesses, AProcessWithoutDescriptorsWarnsOnce) {
  start(1);
  const auto place = lines().at(0).card.places.at(0);
  const HeardLog log;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::string why;
  {
    const Socket client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int next = dup(client.fd());  // the lowest that is free
    ASSERT_EQ(close(next), 0);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(place.port);
    EXPECT_EQ(inet_pton(AF_INET, place.address.c_str(), &address.sin_addr), 1);
    EXPECT_EQ(connect(client.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    std::this_thread::sleep_for(seconds(1));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  }
  EXPECT_THAT(HeardLog::all(), ElementsAre(HasSubstr("nobody can join at this moment")));
  EXPECT_EQ(join().id(), 1U);
}

// Mutation tried: no word while it waits for its turn.
TEST_F(TcpProcesses, WhoWaitsToJoinSaysSo) {
  start(1);
  const HeardLog log;
  const Half first = begin_to_join(lines().at(0), transport::tcp::kFirstToken + 5);  // has its turn for 5 s
  EXPECT_EQ(join(seconds(20), seconds(1)).id(), 1U);
  EXPECT_THAT(HeardLog::all(), ElementsAre(::testing::AllOf(HasSubstr("waits to join"), HasSubstr("process 0"))));
}

// Neither an answer nor an end of the connection.
bool is_silent(const Socket& socket) {
  std::byte any{};
  std::this_thread::sleep_for(milliseconds(300));
  return recv(socket.fd(), &any, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// Mutations tried: who says a wrong byte is dropped at that byte; who says a wrong greeting is dropped at its end.
TEST_F(TcpProcesses, TheSecretCannotBeGuessedByParts) {
  start(1);
  const auto process = lines().at(0);
  const auto& place = process.card.places.at(0);
  const transport::tcp::Greeting right{.nonce = process.card.nonce, .rank = transport::tcp::kFirstToken};
  for (const std::size_t wrong : {0U, 7U, 99U}) {  // byte of the secret
    for (const std::size_t bytes : {9U, 15U, 24U}) {
      transport::tcp::Greeting said = right;
      if (wrong < 8) {
        said.nonce ^= std::uint64_t{1} << (8 * wrong);
      }
      std::string why;
      const Socket socket = transport::tcp::connect_until(place.address, place.port, Clock::now() + seconds(5), why);
      ASSERT_TRUE(socket.valid()) << why;
      EXPECT_TRUE(transport::tcp::write_until(socket, bytes_of(said).first(bytes), Clock::now()));
      EXPECT_EQ(is_silent(socket), bytes < 24 || wrong < 8) << bytes << " bytes, of which " << wrong << " is wrong";
    }
  }
}

TEST_F(TcpProcesses, AWrongSecretLeadsNowhere) {
  start(1);
  auto wrong = lines();
  ++wrong[0].card.nonce;
  transport::tcp::write_join_file(file_, wrong);
  const Error error = error_of([&] { (void)join_plain(seconds(1)); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("process 0 does not answer"));
  EXPECT_THAT(at(0)->newcomers(), IsEmpty());
}

TEST_F(TcpProcesses, AJobThatHasEndedIsSaidSoAtOnce) {
  start(3);
  all_.clear();
  const auto begin = Clock::now();
  const Error error = error_of([&] { (void)join_plain(seconds(60)); });
  EXPECT_LT(Clock::now() - begin, seconds(5));
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("nobody of the 3 processes"));
  start(2);  // and its file is used again
  EXPECT_EQ(lines().size(), 2U);
  Ear& joiner = join();
  EXPECT_EQ(joiner.id(), 2U);
}

TEST_F(TcpProcesses, FilesThatCannotBeAreRefused) {
  EXPECT_EQ(error_of([&] { (void)join_plain(); }).code(), ErrorCode::invalid_argument) << "there is none";
  std::ofstream(file_) << "a letter to somebody\n";
  EXPECT_THAT(error_of([&] { (void)join_plain(); }).what(), HasSubstr("is no join file"));
  EXPECT_THAT(error_of([&] { start(2); }).what(), HasSubstr("is no join file"));
  std::ofstream(file_) << "gradwire-join 0.0.7 0 4711 127.0.0.1 9\n";
  const Error version = error_of([&] { (void)join_plain(); });
  EXPECT_EQ(version.code(), ErrorCode::mismatch);
  EXPECT_THAT(version.what(), ::testing::AllOf(HasSubstr("0.0.7"), HasSubstr(file_)));
  EXPECT_THAT(error_of([&] { start(2, (folder_ / "none" / "join").string()); }).what(), HasSubstr("is no folder"));
  start(2);
  const Error used = error_of([&] { start(2); });
  EXPECT_EQ(used.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(used.what(), HasSubstr("belongs to a job that runs"));
}

// Mutations tried: 5 s for all together; who takes connections and says nothing has ended.
TEST_F(TcpProcesses, AFileOfWhichAProcessIsStoppedIsNotTaken) {
  const auto stopped = transport::tcp::listen_on({"127.0.0.1"}, "");
  const auto other = transport::tcp::listen_on({"127.0.0.1"}, "");
  const auto write = [&](std::vector<transport::tcp::Card> cards) {
    std::vector<Acquaintance> processes;
    for (transport::tcp::Card& card : cards) {
      processes.push_back({.id = static_cast<Id>(processes.size()), .state = {}, .card = std::move(card), .name = {}});
    }
    transport::tcp::write_join_file(file_, processes);
  };
  write({stopped.card, other.card});
  const auto begin = Clock::now();
  const Error error = error_of([&] { start(1); });
  EXPECT_LT(Clock::now() - begin, seconds(9)) << "one after the other";
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("belongs to a job that runs"), HasSubstr("takes connections")));
}

TEST_F(TcpProcesses, OneJobAtATimeTakesAFile) {
  using transport::tcp::JoinFileClaim;
  for (const bool old : {false, true}) {
    if (old) {
      transport::tcp::write_join_file(
          file_, {{.id = 0, .state = {}, .card = {.nonce = 7, .places = {{"127.0.0.1", 1}}}, .name = {}}});
    }
    const JoinFileClaim first(file_);
    in_parallel(4, [&](int) {
      const Error error = error_of([&] { const JoinFileClaim second(file_); });
      EXPECT_THAT(error.what(), HasSubstr("which starts at this moment"));
    });
    EXPECT_TRUE(std::filesystem::exists(file_));
  }
  std::filesystem::remove(file_);
  { const JoinFileClaim nothing_came_of_it(file_); }
  EXPECT_FALSE(std::filesystem::exists(file_));
}

// Mutations tried: no flag O_NOFOLLOW; no look at the mode; an append behind half a line; one bad line for all.
TEST_F(TcpProcesses, JoinFilesAreTrustedOnlyIfNobodyElseWritesThem) {
  start(1);
  const auto refused = [&](const std::string& why) {
    const Error error = error_of([&] { (void)join_plain(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(why));
  };
  ASSERT_EQ(chmod(file_.c_str(), 0620), 0);
  refused("can be written by other users");
  ASSERT_EQ(chmod(file_.c_str(), 0602), 0);
  refused("can be written by other users");
  ASSERT_EQ(chmod(file_.c_str(), 0644), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file_.c_str(), 1, 1), 0);
    refused("belongs to another user");
    ASSERT_EQ(chown(file_.c_str(), 0, 0), 0);
  }
  const std::string moved = file_ + ".moved";
  std::filesystem::rename(file_, moved);
  std::filesystem::create_symlink(moved, file_);
  refused("it is a link");
  transport::tcp::append_to_join_file(file_, transport::tcp::read_join_file(moved).at(0));
  EXPECT_EQ(transport::tcp::read_join_file(moved).size(), 1U) << "appended through the link";
  std::filesystem::remove(file_);
  std::ofstream(file_).close();
  refused("is empty");
  std::filesystem::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  refused("no regular file");
  std::filesystem::remove(file_);
  std::filesystem::rename(moved, file_);
  std::ofstream(file_, std::ios::app) << "\ngradwire-join 0.1.0 what\ngradwire-join " << kVersion << " 1 4711 127.0.0";
  Ear& joiner = join();
  ASSERT_EQ(lines().size(), 2U) << "the half line hides the next one";
  EXPECT_EQ(lines()[1].id, joiner.id());
}

TEST_F(TcpProcesses, WhatNoProcessSaysIsNotUnderstood) {
  using transport::tcp::Turn;
  EXPECT_TRUE(Acquaintance::from_text("ended 3 7 127.0.0.1 9 ::1 10\tprocess 1 on host a"));
  EXPECT_TRUE(Acquaintance::from_text("alive 3 7\t")) << "where nobody can join";
  for (const std::string text :
       {"", "alive 3 7 127.0.0.1 9", "dead 3 7 127.0.0.1 9\ta", "alive -3 7 127.0.0.1 9\ta",
        "alive 3x 7 127.0.0.1 9\ta", "alive 1073741824 7 127.0.0.1 9\ta", "alive 3\ta", "alive 3 7 127.0.0.1\ta",
        "alive 3 7 127.0.0.1 0\ta", "alive 3 7 127.0.0.1 65536\ta", "alive 3 7 somewhere 9\ta",
        "alive 3 7 127.0.0.1 9 \x1b\ta", "alive 3 7 127.0.0.1 9\ta\nb", "alive 3 7 127.0.0.1 9\t\x1b[2J"}) {
    EXPECT_FALSE(Acquaintance::from_text(text)) << text;
  }
  EXPECT_FALSE(Acquaintance::from_text("alive 3 7 127.0.0.1 9\t" + std::string(2000, 'a')));
  const std::string one = "alive 0 7 127.0.0.1 9\ta\n";
  EXPECT_TRUE(Turn::from_text("1 0\n" + one));
  for (const std::string text : {"", "0 0\n", "3 1\n", "1 1073741823\n", "1 0 5\n", "1 0\nalive 1 7 127.0.0.1 9\ta\n",
                                 "1 0\nalive 0 7\ta\n", "1 0\n\n"}) {
    EXPECT_FALSE(Turn::from_text(text)) << text;
  }
}

TEST_F(TcpProcesses, WithoutAFileNobodyListens) {
  start(2, "");
  EXPECT_FALSE(std::filesystem::exists(file_));
  expect_world({&at(0), &at(1)}, 1);
}

}  // namespace
}  // namespace gradwire::test
