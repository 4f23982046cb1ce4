// Tests what only the TCP transport promises: how ranks find each other, and the error when one is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/exchange.hpp"
#include "tests/transport/tcp_world.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using transport::tcp::Clock;

// Progresses until something throws, and returns the error.
Error error_of_waiting(Transport& transport) {
  return error_of([&] {
    for (int i = 0; i < 600; ++i) {
      transport.progress(milliseconds(100));
    }
  });
}

TEST(Tcp, RanksOfOneHostAreOneNode) {
  for (const auto& transport : make_tcp_world(3)) {
    EXPECT_EQ(transport->nodes(), std::vector<std::uint32_t>(3, 0));
    EXPECT_EQ(transport->name(), "tcp");
  }
}

TEST(Tcp, RankThatNeverComesIsNamed) {
  MemoryStore store;
  const Error error = error_of([&] {
    (void)transport::make_tcp(store.rendezvous(), {.rank = 0, .world_size = 2, .timeout = milliseconds(200)});
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("rank 1"));
}

TEST(Tcp, RankThatLeavesItsAddressButDoesNotComeIsNamed) {
  MemoryStore store;
  const auto rendezvous = store.rendezvous();
  rendezvous.put("tcp/host/1", "elsewhere");
  rendezvous.put("tcp/1", "7 127.0.0.1 1");
  const Error error = error_of(
      [&] { (void)transport::make_tcp(rendezvous, {.rank = 0, .world_size = 2, .timeout = milliseconds(300)}); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("rank 1"));
  rendezvous.put("tcp/host/0", "elsewhere");
  rendezvous.put("tcp/0", "7 127.0.0.1 1");
  const Error other = error_of(
      [&] { (void)transport::make_tcp(rendezvous, {.rank = 1, .world_size = 2, .timeout = milliseconds(300)}); });
  EXPECT_EQ(other.code(), ErrorCode::timeout);
  EXPECT_THAT(other.what(), HasSubstr("rank 0"));
}

TEST(Tcp, UnknownInterfaceIsNamedBesideThoseThatThereAre) {
  MemoryStore store;
  const Error error = error_of(
      [&] { (void)transport::make_tcp(store.rendezvous(), {.rank = 0, .world_size = 2, .interface = "nowhere0"}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("nowhere0"), HasSubstr("lo")));
}

// Returns the addresses on which a rank listens, read from its entry in the store.
std::vector<std::pair<std::string, std::uint16_t>> places_of(const std::string& card) {
  std::istringstream stream(card);
  std::uint64_t nonce = 0;
  stream >> nonce;
  std::vector<std::pair<std::string, std::uint16_t>> places;
  std::string address;
  for (std::uint16_t port = 0; stream >> address >> port;) {
    places.emplace_back(address, port);
  }
  return places;
}

// Before a rank's address is known to others, `count` strangers connect there. Each third of them says nothing, the
// first bytes of a greeting, or something else.
class Strangers {
 public:
  Strangers(MemoryStore& store, int count) : store_(store.rendezvous()), count_(count) {}

  [[nodiscard]] transport::Rendezvous rendezvous() {
    return {.put =
                [this](const std::string& key, const std::string& value) {
                  if (key == "tcp/0") {
                    connect(value);
                  }
                  store_.put(key, value);
                },
            .get = store_.get};
  }
  [[nodiscard]] std::size_t connected() const { return sockets_.size(); }

 private:
  void connect(const std::string& card) {
    const auto place = places_of(card).at(0);
    const std::string said[] = {"", "giret", "GET / HTTP/1.1\r\n\r\n"};
    for (int i = 0; i < count_; ++i) {
      std::string why;
      auto socket = transport::tcp::connect_until(place.first, place.second, Clock::now() + milliseconds(2000), why);
      ASSERT_TRUE(socket.valid()) << why;
      EXPECT_TRUE(transport::tcp::write_until(socket, std::as_bytes(std::span(said[i % 3])), Clock::now()));
      sockets_.push_back(std::move(socket));
    }
  }

  transport::Rendezvous store_;
  int count_;
  std::vector<transport::tcp::Socket> sockets_;
};

// Mutation tried: a rank listens only to the first connection, as it once did; then each stranger costs 5 s.
TEST(Tcp, StrangersDelayNobody) {
  for (const int count : {20, 300}) {  // more than a rank listens to at once
    MemoryStore store;
    Strangers strangers(store, count);
    const auto begin = Clock::now();
    const auto world = make_tcp_world(3, strangers.rendezvous());
    EXPECT_EQ(strangers.connected(), static_cast<std::size_t>(count));
    EXPECT_LT(Clock::now() - begin, milliseconds(4000)) << "a rank waits 5 s for a greeting";
    EXPECT_EQ(world.size(), 3U);
  }
}

// On one host ranks listen only on the loopback interface. Mutation tried: they listen on all addresses.
TEST(Tcp, RanksListenWhereTheySay) {
  for (const bool alone : {true, false}) {
    MemoryStore store;
    const auto rendezvous = store.rendezvous();
    rendezvous.put("tcp/host/1", alone ? transport::tcp::host_identity() : "elsewhere");
    std::thread rank([&] {
      EXPECT_EQ(error_of([&] {
                  (void)transport::make_tcp(rendezvous, {.rank = 0, .world_size = 2, .timeout = milliseconds(900)});
                }).code(),
                ErrorCode::timeout);
    });
    const auto places = places_of(rendezvous.get("tcp/0", milliseconds(900)));
    ASSERT_FALSE(places.empty());
    const auto others = transport::tcp::own_addresses("");
    const auto of_loopback = [](const std::string& address) { return address.starts_with("127.") || address == "::1"; };
    const bool networked = !std::all_of(others.begin(), others.end(), of_loopback);
    for (const auto& [address, port] : places) {
      std::string why;
      EXPECT_TRUE(transport::tcp::connect_until(address, port, Clock::now() + milliseconds(300), why).valid()) << why;
      EXPECT_TRUE(!networked || of_loopback(address) == alone) << address;
    }
    const auto& [address, port] = places.front();
    for (const std::string& other : others) {
      std::string why;
      if (other != address && other.find(':') == address.find(':')) {
        EXPECT_FALSE(transport::tcp::connect_until(other, port, Clock::now() + milliseconds(300), why).valid())
            << "listens on " << other << ", too";
      }
    }
    rank.join();
  }
}

// A host may have hundreds of addresses. Mutation tried: only the first addresses count, in the system's order.
TEST(Tcp, OfManyAddressesEachInterfaceHasSome) {
  using transport::tcp::InterfaceAddress;
  std::vector<InterfaceAddress> all;
  for (int i = 0; i < 254; ++i) {
    all.push_back({"dummy0", "10.9.8." + std::to_string(i)});
  }
  all.push_back({"eth0", "10.0.0.1"});
  all.push_back({"eth0", "10.0.0.2"});
  const auto some = transport::tcp::spread_over_interfaces(all);
  ASSERT_EQ(some.size(), transport::tcp::kMostAddresses);
  EXPECT_THAT(std::vector(some.begin(), some.begin() + 5),
              ::testing::ElementsAre("10.9.8.0", "10.0.0.1", "10.9.8.1", "10.0.0.2", "10.9.8.2"));
  EXPECT_TRUE(transport::tcp::spread_over_interfaces({}).empty());
}

// Mutation tried: the rank does not check whether it still needs anything from the other.
TEST(Tcp, RankThatLeftIsMissedByWhoWaitsForItAlone) {
  auto world = make_tcp_world(3);
  Operation receive;
  Operation other;
  Bytes data(10);
  world[0]->post_receive(receive, 2, 1, data);
  world[2].reset();
  EXPECT_FALSE(world[1]->progress(milliseconds(20)));
  const Error error = error_of_waiting(*world[0]);
  EXPECT_EQ(error.code(), ErrorCode::transport);
  EXPECT_EQ(error.cause(), ErrorCause::world);
  EXPECT_THAT(error.what(), HasSubstr("rank 2 has left"));
  world[0]->cancel(receive);
  world[1]->post_receive(other, 0, 1, data);
  const Error heard = error_of_waiting(*world[1]);
  EXPECT_EQ(heard.code(), ErrorCode::aborted);
  EXPECT_THAT(heard.what(), HasSubstr("rank 0 gave up"));
  world[1]->cancel(other);
}

TEST(Tcp, WhatALeavingRankHasSentStillComes) {
  auto world = make_tcp_world(2);
  const Bytes sent = pattern(1, 0, 3, 5000);
  Operation send;
  world[1]->post_send(send, 0, 3, sent);
  while (!send.done()) {
    world[1]->progress(milliseconds(10));
  }
  world[1].reset();
  Batch batch(*world[0]);
  batch.receive(1, 3, sent);
  batch.wait();
}

// Mutation tried: the answer does not name the ranks for which the rank waits.
TEST(Tcp, WhoProgressesAnswers) {
  const auto world = make_tcp_world(3);
  std::atomic<bool> stop = false;
  Operation receive;
  Bytes data(10);
  world[1]->post_receive(receive, 2, 1, data);
  std::thread waiting([&] {
    while (!stop) {
      world[1]->progress(milliseconds(5));
    }
  });
  const auto peers = world[0]->ask(milliseconds(1000));
  stop = true;
  waiting.join();
  world[1]->cancel(receive);
  ASSERT_EQ(peers.size(), 3U);
  EXPECT_TRUE(peers[0].answers);
  EXPECT_TRUE(peers[1].answers);
  EXPECT_EQ(peers[1].waits_for, std::vector<int>{2});
  EXPECT_FALSE(peers[2].answers);
}

// A cancelled send that has left in part goes on without its buffer. Mutation tried: the buffer is still read.
TEST(Tcp, CancelledSendLeavesItsBufferAlone) {
  const auto world = make_tcp_world(2);
  constexpr std::size_t kBytes = 64 << 20;  // more than the kernel buffers
  auto sent = std::make_unique<Bytes>(pattern(0, 1, 9, kBytes));
  const Bytes expected = *sent;
  Operation send;
  world[0]->post_send(send, 1, 9, *sent);
  EXPECT_FALSE(send.done());
  EXPECT_TRUE(world[0]->cancel(send));
  std::fill(sent->begin(), sent->end(), std::byte{0});
  sent.reset();
  Operation more;
  Bytes small(3, std::byte{5});
  world[0]->post_send(more, 1, 10, small);
  std::atomic<bool> stop = false;
  std::thread sending([&] {
    while (!stop) {
      world[0]->progress(milliseconds(1));
    }
  });
  Batch batch(*world[1]);
  batch.receive(0, 9, expected);
  batch.receive(0, 10, small);
  batch.wait();
  stop = true;
  sending.join();
}

}  // namespace
}  // namespace gradwire::test
