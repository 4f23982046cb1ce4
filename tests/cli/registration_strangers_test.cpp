// Tests the registration of drop-ins while others also talk to the server: strangers, crowds, addresses without an
// answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
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

using ::testing::HasSubstr;

// Returns a loopback address, since a machine may have no IPv4.
std::string loopback() { return tcp::addresses_for("", true).front(); }

TEST(Registration, AServerThatHasGoneIsUnreachableAtOnce) {
  auto server = std::make_unique<RegistrationServer>(options(kLong));
  const std::string variable = server->variable();
  Registration begun(settings(variable));
  begun.begin();
  auto waiting = ask_all(variable, "job", 1, 2, 2);
  EXPECT_EQ(waiting[0].wait_for(kUsual), std::future_status::timeout);
  server.reset();
  const auto begin = tcp::Clock::now();
  const RegistrationAnswer answer = begun.ask(0, 2);
  EXPECT_EQ(answer.kind, Kind::unreachable);
  EXPECT_THAT(answer.why, HasSubstr(loopback() + " port "));
  EXPECT_THAT(answer.why, HasSubstr("Connection refused"));
  EXPECT_EQ(waiting[0].get().kind, Kind::unreachable);
  EXPECT_LT(tcp::Clock::now() - begin, std::chrono::seconds(10));
}

// A listener whose queue is full neither accepts nor refuses connections, as behind a firewall that drops packets.
TEST(Registration, AnAddressThatDoesNotAnswerTakesABoundedTime) {
  std::string why;
  const tcp::Listener deaf = tcp::listen_at(loopback(), why);
  ASSERT_TRUE(deaf.socket.valid()) << why;
  tcp::RegistrationAddress address = tcp::RegistrationAddress::random();
  address.places.push_back({.address = loopback(), .port = deaf.port});
  RegistrationSettings given = settings(address.to_text());
  given.to_connect = milliseconds(200);
  Registration one(given);
  const auto begin = tcp::Clock::now();
  one.begin();
  const RegistrationAnswer answer = one.ask(0, 2);
  EXPECT_LT(tcp::Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(answer.kind, Kind::unreachable);
  EXPECT_THAT(answer.why, HasSubstr(loopback() + " port " + std::to_string(deaf.port) + ": no answer"));
  EXPECT_EQ(RegistrationSettings().to_connect, std::chrono::seconds(2));
}

// Another host may have the same address.
TEST(Registration, AStrangerAtTheAddressIsPassedOver) {
  const RegistrationServer other(options(kLong));
  const RegistrationServer server(options(kLong));
  auto address = tcp::RegistrationAddress::from_text(without_local(server.variable())).value();
  const auto wrong = tcp::RegistrationAddress::from_text(other.variable()).value();
  address.places.insert(address.places.begin(), wrong.places.begin(), wrong.places.end());
  for (auto& answer : ask_all(address.to_text(), "job", 0, 2, 2)) {
    const RegistrationAnswer got = answer.get();
    EXPECT_EQ(got.kind, Kind::all) << got.why;
  }
  EXPECT_EQ(other.seen().begun, 0);
}

TEST(Registration, WhoDoesNotHaveTheTokenIsDropped) {
  const RegistrationServer server(options(kLong));
  auto address = tcp::RegistrationAddress::from_text(server.variable()).value();
  address.token.back() = address.token.back() == '0' ? '1' : '0';
  RegistrationSettings given = settings(address.to_text());
  given.to_connect = milliseconds(300);
  Registration stranger(given);
  stranger.begin();
  EXPECT_EQ(stranger.ask(0, 1).kind, Kind::unreachable);
  EXPECT_EQ(server.seen().begun, 0);
}

TEST(Registration, WhoSaysNothingIsDropped) {
  RegistrationServer::Options given = options(kLong);
  given.to_speak = milliseconds(100);
  const RegistrationServer server(given);
  const tcp::Socket silent = connect_to(server.variable());
  ASSERT_TRUE(silent.valid());
  std::byte byte{};
  const auto begin = tcp::Clock::now();
  EXPECT_FALSE(tcp::read_until(silent, std::span(&byte, 1), begin + kLong));
  EXPECT_LT(tcp::Clock::now() - begin, kLong / 2) << "it was not closed";
}

// From a seed come silence, half messages, garbage with and without the token, impossible messages, and crowds.
TEST(Registration, NobodyWhoConnectsHoldsUpAnother) {
  RegistrationServer::Options given = options(kLong);
  given.to_speak = milliseconds(500);
  const RegistrationServer server(given);
  const auto address = tcp::RegistrationAddress::from_text(server.variable()).value();
  std::mt19937 random(41);
  std::vector<tcp::Socket> held;
  for (int i = 0; i < 600; ++i) {
    tcp::Socket socket = connect_to(server.variable());
    if (!socket.valid()) {
      continue;  // the queue is full for a moment
    }
    tcp::RegistrationLetter letter;
    auto bytes = std::as_writable_bytes(std::span(&letter, 1));
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random());
    }
    if (i % 4 >= 2) {
      std::copy(address.token.begin(), address.token.end(), letter.token.begin());
      letter.version = i % 8 >= 4 ? tcp::kRegistrationVersion : letter.version;
      letter.kind = i % 16 >= 8 ? tcp::RegistrationLetter::Kind::asks : letter.kind;
    }
    const std::size_t said = i % 3 == 0 ? 0 : i % 3 == 1 ? random() % bytes.size() : bytes.size();
    static_cast<void>(::send(socket.fd(), bytes.data(), said, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (i % 5 != 0) {
      held.push_back(std::move(socket));  // half open
    }
  }
  const auto begin = tcp::Clock::now();
  for (auto& answer : ask_all(server.variable(), "job", 0, 4, 4)) {
    const RegistrationAnswer got = answer.get();
    EXPECT_EQ(got.kind, Kind::all) << got.why;
  }
  EXPECT_LT(tcp::Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_GT(held.size(), 100U);
}

TEST(Registration, WithFewConnectionsRanksComeAgain) {
  RegistrationServer::Options given = options(kLong);
  given.most_connections = 3;
  const RegistrationServer server(given);
  for (auto& answer : ask_all(server.variable(), "job", 0, 3, 3)) {
    EXPECT_EQ(answer.get().kind, Kind::all);
  }
  given.patience.usual = kUsual;
  const RegistrationServer impatient(given);
  for (auto& answer : ask_all(impatient.variable(), "job", 0, 6, 7)) {
    EXPECT_THAT(answer.get().missing, ::testing::Contains(6)) << "ranks that had to wait asked too late, or were named";
  }
}

}  // namespace
}  // namespace gradwire::cli
