// What only the TCP transport promises: how ranks find each other, and what they hear of one that is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/exchange.hpp"
#include "tests/transport/tcp_world.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Progresses until something throws.
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
  rendezvous.put("tcp/1", "elsewhere 7 1 127.0.0.1");
  const Error error = error_of(
      [&] { (void)transport::make_tcp(rendezvous, {.rank = 0, .world_size = 2, .timeout = milliseconds(300)}); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("rank 1"));
  rendezvous.put("tcp/0", "elsewhere 7 1 127.0.0.1");
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

// Mutation tried: not looking whether something is still wanted from it.
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

// Mutation tried: an answer without the ranks that it waits for.
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

// A cancelled send that is half sent goes on without its buffer; Mutation tried: the buffer is still read.
TEST(Tcp, CancelledSendLeavesItsBufferAlone) {
  const auto world = make_tcp_world(2);
  constexpr std::size_t kBytes = 64 << 20;  // more than the kernel takes
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
