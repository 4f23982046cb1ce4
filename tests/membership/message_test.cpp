#include "membership/membership_message.hpp"

#include <gtest/gtest.h>

#include <random>

namespace gradwire::membership {
namespace {

MembershipMessage full() {
  MembershipMessage message;
  message.kind = MembershipMessage::Kind::promise;
  message.from = 3;
  message.epoch = 7;
  message.ballot = {1ULL << 40, 1};
  message.step = 1ULL << 40;
  message.dead = {{1, 7, 1ULL << 39}, {5}};
  message.silent = {2};
  message.known = {1000};
  message.gone = {4, 9};
  message.ready = {5, 0, 1ULL << 50};
  message.accepted = {1, 0};
  message.decision = Decision{{8, {0, 2, 3}}, 99};
  return message;
}

TEST(MembershipMessages, ComeBackAsTheyWere) {
  EXPECT_EQ(decode(encode(full())), full());
  EXPECT_EQ(decode(encode(MembershipMessage{})), MembershipMessage{});
}

TEST(MembershipMessages, ThatEndTooEarlyOrTooLateAreErrors) {
  const wire::Bytes bytes = encode(full());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(static_cast<void>(decode(std::span(bytes).first(length))), Error) << length;
  }
  wire::Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(static_cast<void>(decode(longer)), Error);
}

TEST(MembershipMessages, DamagedOnesAreErrorsOrOtherMessages) {
  std::mt19937 random(std::random_device{}());
  const auto seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  random.seed(seed);
  const wire::Bytes bytes = encode(full());
  for (int round = 0; round < 20'000; ++round) {
    wire::Bytes damaged = bytes;
    for (int i = 0; i < 3; ++i) {
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    }
    try {
      const MembershipMessage message = decode(damaged);
      EXPECT_EQ(decode(encode(message)), message);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
    }
  }
}

}  // namespace
}  // namespace gradwire::membership
