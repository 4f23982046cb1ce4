// Tests the sealed transport alone: the contract of transports, one seal for several receivers, ranks with other keys,
// and an attacker between the ranks.
#include "transport/sealed_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/emulation.hpp"
#include "hex_bytes.hpp"
#include "recorded_traffic.hpp"
#include "sealed_messages.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/conformance.hpp"
#include "tests/transport/tcp_world.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

using Endpoint = std::shared_ptr<Transport>;
using World = std::vector<Endpoint> (*)(int world_size);
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Endpoint> inproc_world(int world_size) { return make_inproc_world(world_size); }

std::vector<Endpoint> throttled_world(int world_size) {
  auto world = make_inproc_world(world_size);
  for (Endpoint& endpoint : world) {
    endpoint = make_throttled(std::move(endpoint), Link::parse("10Gbit/s,20us"));
  }
  return world;
}

constexpr World kWorlds[] = {&inproc_world, &throttled_world, &make_tcp_world};

// Returns all scenarios but two, whose errors state sizes that include the seal.
std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  for (const Scenario& scenario : transport_scenarios()) {
    const std::string name = scenario.name;
    if (name != "message_of_another_size" && name != "longer_than_at_most") {
      all.push_back(scenario);
    }
  }
  return all;
}

class SealedConformance : public ::testing::TestWithParam<std::tuple<World, Scenario, int>> {};

TEST_P(SealedConformance, Holds) {
  const auto& [make, scenario, world_size] = GetParam();
  auto world = make(world_size);
  for (Endpoint& endpoint : world) {
    endpoint = transport::make_sealed(endpoint, published_key());
  }
  run_ranks(std::move(world), [run = scenario.run](const Endpoint& endpoint) { run(*endpoint); });
}

INSTANTIATE_TEST_SUITE_P(Transports, SealedConformance,
                         ::testing::Combine(::testing::ValuesIn(kWorlds), ::testing::ValuesIn(scenarios()),
                                            ::testing::Values(1, 2, 3)));

// Every rank sends each message to all others, and receives theirs.
void exchange(Transport& transport, const std::vector<std::byte>& message, Tag tag) {
  std::vector<Operation> operations(2 * static_cast<std::size_t>(transport.world_size()));
  std::vector<std::vector<std::byte>> received(operations.size(), std::vector<std::byte>(message.size()));
  struct Cancels {
    ~Cancels() {
      for (Operation& operation : operations) {
        transport.cancel(operation);
      }
    }
    Transport& transport;
    std::vector<Operation>& operations;
  } const cancels{transport, operations};
  for (int peer = 0; peer < transport.world_size(); ++peer) {
    if (peer != transport.rank()) {
      const auto at = static_cast<std::size_t>(2 * peer);
      transport.post_receive(operations[at], peer, tag, received[at]);
      transport.post_send(operations[at + 1], peer, tag, message);
    }
  }
  wait_for(transport, operations);
  for (int peer = 0; peer < transport.world_size(); ++peer) {
    if (peer != transport.rank() && received[static_cast<std::size_t>(2 * peer)] != message) {
      throw Error(ErrorCode::internal, "a wrong message was taken");
    }
  }
}

std::uint64_t counter_of(const RecordedMessage& message) {
  std::uint64_t counter = 0;
  std::memcpy(&counter, message.bytes.data() + message.bytes.size() - 24, sizeof counter);
  return counter;
}

class SealedFrames : public ::testing::TestWithParam<std::uint8_t> {};

TEST_P(SealedFrames, AreSealedOnceForAllReceivers) {
  const auto traffic = std::make_shared<Traffic>();
  auto world = recorded_world(4, traffic);
  for (Endpoint& endpoint : world) {
    endpoint = transport::make_sealed(endpoint, published_key());
  }
  run_ranks(std::move(world), [](const Endpoint& endpoint) {
    exchange(*endpoint, frame_of(1, GetParam()), 8);
    exchange(*endpoint, std::vector<std::byte>(50), 16);
  });
  std::map<int, std::set<std::vector<std::byte>>> frames;
  std::map<int, std::set<std::uint64_t>> others;
  for (const RecordedMessage& message : traffic->messages()) {
    if (message.tag == 8) {
      EXPECT_EQ(message.bytes.size(), 96 + 24);
      EXPECT_EQ(message.bytes[4], std::byte{3}) << "wire version";
      frames[message.from].insert(message.bytes);
    } else if (message.tag == 16) {
      others[message.from].insert(counter_of(message));
    }
  }
  EXPECT_EQ(traffic->messages().size(), 4 * 3 * 3) << "a greeting, a frame and another message for each pair";
  EXPECT_EQ(frames.size(), 4);
  for (const auto& [rank, sent] : frames) {
    EXPECT_EQ(sent.size(), 1) << "rank " << rank;
    EXPECT_EQ(others[rank].size(), 3) << "each has its receiver as associated data";
  }
}

INSTANTIATE_TEST_SUITE_P(Flags, SealedFrames, ::testing::Values(std::uint8_t{0}, wire::kFlagCrc));

// The greetings may have come before the first message is posted.
TEST(SealedTransport, KeysThatArePresentInAPostSendOnce) {
  const auto traffic = std::make_shared<Traffic>();
  const auto inner = recorded_world(2, traffic);
  std::vector<Endpoint> world;
  for (const Endpoint& endpoint : inner) {
    world.push_back(transport::make_sealed(endpoint, published_key()));
  }
  for (const Endpoint& endpoint : world) {
    Operation operation;
    std::vector<std::byte> bytes(8);
    endpoint->post_receive(operation, 1 - endpoint->rank(), 7, bytes);
    EXPECT_TRUE(endpoint->cancel(operation));
  }
  for (const Endpoint& endpoint : inner) {
    static_cast<void>(endpoint->progress(std::chrono::microseconds(0)));
  }
  run_ranks(std::move(world), [](const Endpoint& endpoint) { exchange(*endpoint, frame_of(1), 8); });
  EXPECT_EQ(traffic->messages().size(), 2 + 2);
}

// A frame that goes to a rank twice must be sealed twice, as that rank takes each counter once.
TEST(SealedTransport, AFrameMayGoToARankTwice) {
  auto world = make_inproc_world(3);
  for (Endpoint& endpoint : world) {
    endpoint = transport::make_sealed(endpoint, published_key());
  }
  run_ranks(std::move(world), [](const Endpoint& endpoint) {
    const std::vector<std::byte> frame = frame_of(7);
    std::vector<Operation> operations(4);
    std::vector<std::vector<std::byte>> received(4, std::vector<std::byte>(frame.size()));
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const int other = 1 + static_cast<int>(i % 2);
      if (endpoint->rank() == 0) {
        endpoint->post_send(operations[i], other, static_cast<Tag>(8 * i), frame);
      } else if (endpoint->rank() == other) {
        endpoint->post_receive(operations[i], 0, static_cast<Tag>(8 * i), received[i]);
      }
    }
    wait_for(*endpoint, operations);
    if (endpoint->rank() != 0) {
      const auto first = static_cast<std::size_t>(endpoint->rank() - 1);
      EXPECT_EQ(received[first], frame);
      EXPECT_EQ(received[first + 2], frame);
    }
  });
}

TEST(SealedTransport, AMessageOfAnotherSizeIsAnError) {
  auto world = make_inproc_world(2);
  for (Endpoint& endpoint : world) {
    endpoint = transport::make_sealed(endpoint, published_key());
  }
  const auto errors = run_ranks_catching(std::move(world), [](const Endpoint& endpoint) {
    std::vector<Operation> operations(2);
    std::vector<std::byte> bytes(100);
    exchange(*endpoint, frame_of(1), 8);
    try {
      if (endpoint->rank() == 0) {
        endpoint->post_receive(operations[0], 1, 16, std::span(bytes).first(50));
      } else {
        endpoint->post_send(operations[0], 0, 16, bytes);
        endpoint->post_receive(operations[1], 0, 24, bytes);
      }
      wait_for(*endpoint, operations);
    } catch (const Error& error) {
      endpoint->abort(error);
      for (Operation& operation : operations) {
        endpoint->cancel(operation);
      }
      throw;
    }
  });
  EXPECT_THAT(told(errors[0]), AllOf(HasSubstr("mismatch"), HasSubstr("rank 1"), HasSubstr("the seal")));
}

void exchange_a_frame(const Endpoint& endpoint) {
  try {
    exchange(*endpoint, frame_of(1), 8);
  } catch (const Error& error) {
    endpoint->abort(error);
    throw;
  }
}

TEST(SealedTransport, ARankWithAnotherKeyIsNamed) {
  auto world = make_inproc_world(3);
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    world[rank] = transport::make_sealed(world[rank], rank == 1 ? security::Key::random() : published_key());
  }
  const auto errors = run_ranks_catching(std::move(world), exchange_a_frame);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_THAT(told(errors[rank]), HasSubstr("has another key")) << rank;
  }
}

TEST(SealedTransport, ARankWithoutAKeyIsAnError) {
  auto world = make_inproc_world(2);
  world[0] = transport::make_sealed(world[0], published_key());
  const auto errors = run_ranks_catching(std::move(world), exchange_a_frame);
  EXPECT_THAT(told(errors[0]), AllOf(HasSubstr("mismatch"), HasSubstr("is the key of the job set on every rank?")));
  EXPECT_FALSE(told(errors[1]).empty());
}

// An attacker between the ranks, who changes, swaps or repeats one message.
class Attacker final : public ForwardingTransport {
 public:
  Attacker(Endpoint inner, std::uint64_t seed, int at)
      : ForwardingTransport(std::move(inner)), random_(seed), at_(at) {}

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    std::vector<std::byte> bytes(data.begin(), data.end());
    if (sent_++ == at_) {
      attack(bytes);
    }
    earlier_.push_back(std::move(bytes));
    inner().post_send(operation, peer, tag, earlier_.back());
  }

 private:
  void attack(std::vector<std::byte>& bytes) {
    std::vector<std::size_t> alike;
    for (std::size_t i = 0; i < earlier_.size(); ++i) {
      if (earlier_[i].size() == bytes.size() && earlier_[i] != bytes) {
        alike.push_back(i);
      }
    }
    if (random_() % 2 == 0 && !alike.empty()) {
      bytes = earlier_[alike[random_() % alike.size()]];
      return;
    }
    bytes[random_() % bytes.size()] ^= static_cast<std::byte>(1 + random_() % 255);
  }

  std::mt19937_64 random_;
  int at_;
  int sent_ = 0;
  std::deque<std::vector<std::byte>> earlier_;
};

TEST(SealedTransport, AnAttackEndsInAnErrorAndNeverInAWrongMessage) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  int noticed = 0;
  int attacks = 0;
  constexpr int kAttacks = 300;
  constexpr int kMessages = 2 + 5 * 4;  // of a rank: greetings and rounds
  constexpr int kPoints = kMessages + 1;
  for (int attack = 0; attack < kAttacks; ++attack) {
    auto world = make_inproc_world(3);
    const auto attacked = static_cast<std::size_t>(attack % 3);
    world[attacked] =
        std::make_shared<Attacker>(world[attacked], seed + static_cast<unsigned>(attack), attack % kPoints);
    for (Endpoint& endpoint : world) {
      endpoint = transport::make_sealed(endpoint, published_key());
    }
    const auto errors = run_ranks_catching(std::move(world), [](const Endpoint& endpoint) {
      try {
        for (std::uint32_t round = 0; round < 5; ++round) {
          exchange(*endpoint, frame_of(round), 8 * (2 * round + 1));
          exchange(*endpoint, std::vector<std::byte>(96, static_cast<std::byte>(round)), 8 * (2 * round + 2));
        }
      } catch (const Error& error) {
        endpoint->abort(error);
        throw;
      }
    });
    bool any = false;
    for (const std::exception_ptr& error : errors) {
      const std::string text = told(error);
      any = any || !text.empty();
      EXPECT_THAT(text, ::testing::Not(HasSubstr("wrong message")));
      if (!text.empty()) {
        EXPECT_THAT(text, HasSubstr("rank " + std::to_string(attacked)));
      }
    }
    noticed += any ? 1 : 0;
    attacks += attack % kPoints < kMessages ? 1 : 0;
  }
  EXPECT_EQ(noticed, attacks);
}

}  // namespace
}  // namespace gradwire::test
