// Tests lanes of two channels: the requests of one side, and what the other hears.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "tests/transport/connected.hpp"
#include "transport/tcp/tcp_channel.hpp"

namespace gradwire::test {
namespace {

using transport::tcp::BrokenLane;
using transport::tcp::Channel;
using transport::tcp::PacketKind;
using transport::tcp::Socket;
using What = Channel::Heard::What;
using Role = transport::tcp::TcpLane::Role;

struct TwoChannels {
  TwoChannels() {
    for (int lane = 0; lane < 2; ++lane) {
      auto [left, right] = connected();
      static_cast<void>(dials.add(std::move(left), Role::dials));
      static_cast<void>(accepts.add(std::move(right), Role::accepts));
    }
    static_cast<void>(hear(accepts, 2));
    static_cast<void>(hear(dials, 2));
  }
  /// Receives at least `count` messages.
  static std::vector<Channel::Heard> hear(Channel& channel, std::size_t count) {
    std::vector<Channel::Heard> heard;
    for (int i = 0; i < 200 && heard.size() < count; ++i) {
      for (Channel::Heard& one : channel.hear(std::chrono::milliseconds(20))) {
        heard.push_back(std::move(one));
      }
    }
    return heard;
  }
  Channel dials;
  Channel accepts;
};

// The side that dials may not notice that a connection broke: the other side says so on the other lane. Mutation tried:
// a newer connection is broken, too.
TEST(TcpChannel, ABrokenLaneIsAskedForOnTheOtherOne) {
  TwoChannels both;
  both.accepts.ask_again(0, 1);
  const auto heard = TwoChannels::hear(both.dials, 1);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].what, What::again);
  EXPECT_EQ(heard[0].from, 0U);
  BrokenLane broken;
  ASSERT_TRUE(transport::tcp::read_body(heard[0].body, broken));
  EXPECT_EQ(broken.attempt, 1U);
  both.dials.break_at(1, broken.attempt + 1);
  EXPECT_TRUE(both.dials.hear(std::chrono::milliseconds(50)).empty());
  both.dials.break_at(1, broken.attempt);
  const auto broke = TwoChannels::hear(both.dials, 1);
  ASSERT_EQ(broke.size(), 1U);
  EXPECT_EQ(broke[0].what, What::broke);
  EXPECT_EQ(broke[0].from, 1U);
  auto [left, right] = connected();
  both.accepts.offer(1, std::move(right));
  both.dials.offer(1, std::move(left));
  static_cast<void>(TwoChannels::hear(both.accepts, 1));
  EXPECT_EQ(TwoChannels::hear(both.dials, 1).at(0).what, What::mended);
  both.dials.break_at(1, broken.attempt);  // this connection is already gone
  EXPECT_TRUE(both.dials.hear(std::chrono::milliseconds(50)).empty());
}

// Before a process ends, it makes sure that its last message has arrived, even if the other side has said nothing yet.
// Mutation tried: it does not wait.
TEST(TcpChannel, TheLastWordArrives) {
  auto [left, right] = connected();
  Channel dials;
  Channel accepts;
  static_cast<void>(dials.add(std::move(left), Role::dials));
  static_cast<void>(accepts.add(std::move(right), Role::accepts));
  dials.send(0, std::as_bytes(std::span("text", 4)));
  bool came = false;
  std::thread hears([&] {
    for (int i = 0; i < 200 && !came; ++i) {
      for (const Channel::Heard& one : accepts.hear(std::chrono::milliseconds(20))) {
        came = came || one.what == What::farewell;
      }
    }
  });
  dials.end(std::as_bytes(std::span("last", 4)));
  hears.join();
  EXPECT_TRUE(came);
}

}  // namespace
}  // namespace gradwire::test
