// Tests the registration of drop-ins: the server of `gradwire run` and the client are in one process, without MPI.
#include "drop_in/registration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/mpi_job.hpp"
#include "cli/registration_server.hpp"
#include "registered_ranks.hpp"
#include "transport/tcp/tcp_registration.hpp"
#include "transport/tcp/tcp_report_end.hpp"

namespace gradwire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Registration, AllRanksThatAskAreAll) {
  const RegistrationServer server(options(kLong));
  for (const std::string& place : {server.variable(), without_local(server.variable())}) {
    const auto begin = tcp::Clock::now();
    for (auto& answer : ask_all(place, "job " + place, 0, 4, 4)) {
      const RegistrationAnswer got = answer.get();
      EXPECT_EQ(got.kind, Kind::all) << got.why;
      EXPECT_THAT(got.missing, IsEmpty());
    }
    EXPECT_LT(tcp::Clock::now() - begin, kLong / 2) << "they were not answered at once";
  }
  EXPECT_EQ(server.seen().begun, 8);
  EXPECT_EQ(server.seen().asked, 8);
  EXPECT_THAT(server.seen().hosts_of_root, ElementsAre(tcp::host_name()));
}

TEST(Registration, ProcessesSayHowTheyEnd) {
  for (const bool local : {true, false}) {
    RegistrationServer server(options(kLong));
    const std::string place = local ? server.variable() : without_local(server.variable());
    tcp::EndReport well(place);
    tcp::EndReport badly(place);
    tcp::EndReport unneeded(place);
    tcp::EndReport killed(place);
    tcp::EndReport never_began(place);
    for (tcp::EndReport* one : {&well, &badly, &unneeded, &killed}) {
      one->begin();
    }
    well.end(0);
    badly.end(82);
    badly.end(0);  // the first message counts
    unneeded.end(tcp::kNoPlace);
    never_began.end(0);
    const SeenRanks seen = server.seen();
    EXPECT_EQ(seen.elastic, 4);
    EXPECT_EQ(seen.never_placed, 1);
    EXPECT_EQ(seen.ended_as, (std::map<int, int>{{0, 1}, {82, 1}}));
    server.start_anew();
    EXPECT_EQ(server.seen().elastic, 0) << "that was the run before";
    badly.end(1);
    killed.end(0);
    EXPECT_TRUE(server.seen().ended_as.empty()) << "a process of an earlier run talks to the next one";
  }
}

TEST(Registration, WithoutAServerNobodyIsToldHowAProcessEnds) {
  tcp::EndReport nowhere("");
  nowhere.begin();
  nowhere.end(0);
  tcp::EndReport nonsense("nonsense");
  nonsense.begin();
  nonsense.end(0);
}

TEST(Registration, WithoutAServerNothingIsKnown) {
  ASSERT_EQ(::unsetenv("GRADWIRE_REGISTER"), 0);
  Registration of_environment;
  of_environment.begin();
  EXPECT_EQ(of_environment.ask(0, 2).kind, Kind::no_server);
  ASSERT_EQ(::setenv("GRADWIRE_REGISTER", "nonsense", 1), 0);
  Registration wrong;
  wrong.begin();
  const RegistrationAnswer answer = wrong.ask(0, 2);
  EXPECT_EQ(answer.kind, Kind::unreachable);
  EXPECT_THAT(answer.why, HasSubstr("GRADWIRE_REGISTER, which is not one that gradwire run sets"));
  ASSERT_EQ(::unsetenv("GRADWIRE_REGISTER"), 0);
}

TEST(Registration, MissingRanksAreNamedToEveryRankAlike) {
  const RegistrationServer server(options(kUsual));
  auto answers = ask_all(server.variable(), "job", 0, 2, 4);
  for (auto& answer : answers) {
    const RegistrationAnswer got = answer.get();
    EXPECT_EQ(got.kind, Kind::missing);
    EXPECT_THAT(got.missing, ElementsAre(2, 3));
  }
  for (int late = 2; late < 4; ++late) {
    Registration one(settings(server.variable()));
    EXPECT_THAT(one.ask(late, 4).missing, ElementsAre(2, 3)) << "a late rank, without begin()";
  }
}

TEST(Registration, RanksThatAreStillInMpiInitAreWaitedFor) {
  const RegistrationServer server(options(kUsual));
  Registration slow(settings(server.variable(), "job", 1));
  slow.begin();
  auto first = ask_all(server.variable(), "job", 0, 1, 2);
  EXPECT_EQ(first[0].wait_for(4 * kUsual), std::future_status::timeout);
  EXPECT_EQ(slow.ask(1, 2).kind, Kind::all);
  EXPECT_EQ(first[0].get().kind, Kind::all);
}

TEST(Registration, ARankThatDiesInMpiInitIsMissing) {
  const RegistrationServer server(options(kUsual));
  auto dies = std::make_unique<Registration>(settings(server.variable(), "job", 1));
  dies->begin();
  auto first = ask_all(server.variable(), "job", 0, 1, 2);
  EXPECT_EQ(first[0].wait_for(2 * kUsual), std::future_status::timeout);
  dies.reset();
  EXPECT_THAT(first[0].get().missing, ElementsAre(1));
}

TEST(Registration, ARankThatBeganIsNotNamedBesideOneThatDidNot) {
  const RegistrationServer server(options(kUsual));
  Registration slow(settings(server.variable(), "job", 1));
  slow.begin();
  auto first = ask_all(server.variable(), "job", 0, 1, 3);
  EXPECT_THAT(first[0].get().missing, ElementsAre(2));
  EXPECT_THAT(slow.ask(1, 3).missing, ElementsAre(2));
}

TEST(Registration, JobsAreKeptApart) {
  const RegistrationServer server(options(kUsual));
  auto whole = ask_all(server.variable(), "a", 0, 3, 3);
  auto half = ask_all(server.variable(), "b", 1, 3, 3);
  auto child = ask_all(server.variable(), "a", 0, 2, 2);  // another world of the same name has another size
  for (auto& answer : whole) {
    EXPECT_EQ(answer.get().kind, Kind::all);
  }
  for (auto& answer : half) {
    EXPECT_THAT(answer.get().missing, ElementsAre(0));
  }
  for (auto& answer : child) {
    EXPECT_EQ(answer.get().kind, Kind::all);
  }
}

// A process id may be used again.
TEST(Registration, ALaterJobOfTheSameNameIsAnother) {
  const RegistrationServer server(options(kUsual));
  for (int i = 0; i < 3; ++i) {
    for (auto& answer : ask_all(server.variable(), "job", 0, 2, 2)) {
      EXPECT_EQ(answer.get().kind, Kind::all);
    }
  }
  auto half = ask_all(server.variable(), "job", 0, 1, 2);
  EXPECT_THAT(half[0].get().missing, ElementsAre(1));
  EXPECT_EQ(server.seen().asked, 7);
}

TEST(Registration, ARankThatAsksTwiceIsToldTheSame) {
  const RegistrationServer server(options(kUsual));
  Registration one(settings(server.variable()));
  one.begin();
  EXPECT_THAT(one.ask(1, 2).missing, ElementsAre(0));
  EXPECT_THAT(one.ask(1, 2).missing, ElementsAre(0));
  EXPECT_EQ(server.seen().asked, 1);
}

TEST(Registration, AWorldOfOneNeedsNoName) {
  const RegistrationServer server(options(kLong));
  Registration alone(settings(server.variable(), ""));
  alone.begin();
  EXPECT_EQ(alone.ask(0, 1).kind, Kind::all);
  Registration unknown(settings(server.variable(), ""));
  const RegistrationAnswer answer = unknown.ask(0, 2);
  EXPECT_EQ(answer.kind, Kind::unreachable);
  EXPECT_THAT(answer.why, HasSubstr("which MPI job"));
}

TEST(Registration, AfterANewStartTheOldTokenIsWorthNothing) {
  RegistrationServer server(options(kLong));
  const std::string before = server.variable();
  Registration left(settings(before, "job", 0));
  left.begin();
  auto waiting = ask_all(before, "job", 1, 2, 2);
  EXPECT_EQ(waiting[0].wait_for(kUsual), std::future_status::timeout);
  server.start_anew();
  EXPECT_EQ(waiting[0].get().kind, Kind::unreachable);
  EXPECT_EQ(left.ask(0, 2).kind, Kind::unreachable);
  EXPECT_EQ(server.seen().begun, 0);
  EXPECT_NE(server.variable(), before);
  for (auto& answer : ask_all(server.variable(), "job", 0, 2, 2)) {
    EXPECT_EQ(answer.get().kind, Kind::all);
  }
}

TEST(Registration, AddressesAreReadBack) {
  tcp::RegistrationAddress address = tcp::RegistrationAddress::random();
  address.places = {{.address = "192.0.2.7", .port = 4711}, {.address = "fd00::2", .port = 1}};
  const auto read = tcp::RegistrationAddress::from_text(address.to_text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->to_text(), address.to_text());
  EXPECT_EQ(read->places[1].address, "fd00::2");
  EXPECT_EQ(address.to_text().find_first_of(" ;|&$'\"()<>[]*?!#~`\\"), std::string::npos) << "a shell may see it";
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = address.to_text();
    damaged.resize(i % 2 == 0 ? damaged.size() : random() % damaged.size());
    if (!damaged.empty()) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (const auto other = tcp::RegistrationAddress::from_text(damaged)) {
      EXPECT_EQ(other->to_text(), damaged);
    }
  }
}

TEST(Registration, HydrasProxyNamesTheJob) {
  const auto words = [](std::initializer_list<const char*> all) {
    std::string text;
    for (const char* word : all) {
      text += std::string(word) + '\0';
    }
    return text;
  };
  EXPECT_EQ(hydra_job(words({"/usr/bin/hydra_pmi_proxy", "--control-port", "vm:39605", "--pgid", "0"})),
            "hydra vm:39605 0");
  EXPECT_EQ(hydra_job(words({"hydra_pmi_proxy", "--control-port", "vm:39605", "--pgid", "1"})), "hydra vm:39605 1")
      << "a spawned world";
  EXPECT_EQ(hydra_job(words({"hydra_bstrap_proxy", "--upstream-host", "n1", "--upstream-port", "4000"})),
            "hydra n1:4000 0");
  EXPECT_EQ(hydra_job(words({"/usr/bin/hydra_pmi_proxy", "--usize", "-1"})), "");
  EXPECT_EQ(hydra_job(words({"sh", "--control-port", "vm:1"})), "");
  EXPECT_EQ(hydra_job(""), "");
  EXPECT_EQ(hydra_job("hydra_pmi_proxy"), "");
  EXPECT_EQ(hydra_job(words({"hydra_pmi_proxy", "--control-port"})), "");
}

TEST(RegistrationWorlds, AProcessBeginsAsLongAsOneOfItsConnectionsIsLeft) {
  RegistrationWorlds worlds({.usual = milliseconds(10), .longest = milliseconds(40)});
  const RegistrationWorlds::Time start{};
  const RegistrationWorlds::Process slow{.number = 7, .job = "job", .rank = 1, .host = "h"};
  worlds.begin(1, slow);
  worlds.begin(2, slow);
  worlds.leave(1);
  ASSERT_TRUE(worlds.ask(3, {.number = 8, .job = "job", .rank = 0, .host = "h"}, 2, start));
  EXPECT_THAT(worlds.take_answers(start + milliseconds(20)), IsEmpty()) << "rank 1 is in MPI_Init";
  ASSERT_TRUE(worlds.ask(2, slow, 2, start + milliseconds(20)));
  EXPECT_EQ(worlds.take_answers(start + milliseconds(20)).size(), 2U);
  worlds.begin(4, slow);  // late
  EXPECT_EQ(worlds.seen().begun, 1);
  EXPECT_EQ(worlds.seen().asked, 2);
}

// From a seed, ranks of several worlds with one name begin, ask, ask again and leave in any order. Each world has one
// answer.
TEST(RegistrationWorlds, EveryRankOfAWorldGetsTheSameAnswer) {
  std::mt19937 random(9);
  for (int run = 0; run < 300; ++run) {
    RegistrationWorlds worlds({.usual = milliseconds(10), .longest = milliseconds(40)});
    const int size = 1 + static_cast<int>(random() % 5);
    const int absent = random() % 2 == 0 ? -1 : static_cast<int>(random() % static_cast<unsigned>(size));
    RegistrationWorlds::Time now{};
    std::map<RegistrationWorlds::Visitor, std::vector<int>> answers;
    const auto take = [&] {
      for (const auto& answer : worlds.take_answers(now)) {
        EXPECT_TRUE(answers.emplace(answer.visitor, answer.missing).second) << "answered twice";
      }
    };
    for (int rank = 0; rank < size; ++rank) {
      const RegistrationWorlds::Process process{
          .number = static_cast<std::uint64_t>(rank) + 1, .job = "job", .rank = rank, .host = "h"};
      now += milliseconds(random() % 4);
      if (rank != absent) {
        worlds.begin(process.number, process);
        EXPECT_TRUE(worlds.ask(process.number, process, size, now));
      }
      take();
    }
    while (const auto next = worlds.next(now)) {
      now = std::max(now, *next);
      take();
    }
    const int there = absent < 0 ? size : size - 1;
    ASSERT_EQ(answers.size(), static_cast<std::size_t>(there)) << "run " << run;
    for (const auto& [visitor, missing] : answers) {
      EXPECT_EQ(missing, answers.begin()->second);
    }
    if (there > 0 && answers.begin()->second.empty()) {
      EXPECT_EQ(absent, -1);
    }
  }
}

}  // namespace
}  // namespace gradwire::cli
