// Runs random schedules over the sealed transport: ranks post their messages in different orders, over several tags, of
// several sizes and kinds, and give up operations of which the other side knows nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/emulation.hpp"
#include "hex_bytes.hpp"
#include "sealed_messages.hpp"
#include "tests/support/ranks.hpp"
#include "transport/sealed_transport.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

using Bytes = std::vector<std::byte>;
using Endpoint = std::shared_ptr<Transport>;

constexpr int kPlayers = 3;
constexpr std::uint32_t kMessagesOfRank = 24;
constexpr Tag kTags[] = {0, 1, 8, 16};            // the last two are those of frames
constexpr Tag kReceiveOnly = 24, kSendOnly = 32;  // tags of operations that are given up

struct Message {
  Tag tag = 0;
  Bytes bytes;
  bool repeated = false;  // it is sent twice
};

// What a rank sends to every other one. All ranks derive the same messages from the seed.
std::deque<Message> messages_of(std::uint64_t seed, int rank) {
  std::mt19937_64 random(seed * kPlayers + static_cast<std::uint64_t>(rank));
  std::deque<Message> messages;
  for (std::uint32_t i = 0; i < kMessagesOfRank; ++i) {
    Message& message = messages.emplace_back();
    message.tag = kTags[random() % std::size(kTags)];
    if (message.tag >= 8) {
      message.bytes = frame_of(i, random() % 2 == 0 ? wire::kFlagCrc : std::uint8_t{0});
    } else {
      message.bytes.resize(random() % 5 == 0 ? 0 : random() % 9000, static_cast<std::byte>(16 * rank + 1));
      if (!message.bytes.empty()) {
        std::memcpy(message.bytes.data(), &i, std::min(message.bytes.size(), sizeof i));
      }
    }
    message.repeated = random() % 4 == 0;
  }
  return messages;
}

// One rank's part of a schedule.
class Player {
 public:
  Player(Transport& transport, std::uint64_t seed)
      : transport_(transport), random_(seed ^ static_cast<std::uint64_t>(transport.rank() + 1) << 32U) {
    for (int rank = 0; rank < kPlayers; ++rank) {
      all_.push_back(messages_of(seed, rank));
    }
    for (const Message& message : all_[static_cast<std::size_t>(transport.rank())]) {
      for (int copy = 0; copy < (message.repeated ? 2 : 1); ++copy) {
        for (int peer = 0; peer < kPlayers; ++peer) {
          if (peer != transport.rank()) {
            orders_[{peer, message.tag, true}].push_back(&message);
          }
        }
      }
    }
    for (int peer = 0; peer < kPlayers; ++peer) {
      for (const Message& message : all_[static_cast<std::size_t>(peer)]) {
        for (int copy = 0; peer != transport.rank() && copy < (message.repeated ? 2 : 1); ++copy) {
          orders_[{peer, message.tag, false}].push_back(&message);
        }
      }
    }
  }
  ~Player() {
    for (Posted& posted : posted_) {
      transport_.cancel(posted.operation);
    }
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void play() {
    while (!orders_.empty()) {
      post_next();
      if (random_() % 4 == 0) {
        post_and_give_up();
      }
      if (random_() % 3 == 0) {
        static_cast<void>(transport_.progress(std::chrono::microseconds(random_() % 2 * 50)));
      }
    }
    for (Posted& posted : posted_) {
      take(posted);
    }
  }

 private:
  struct Place {
    int peer;
    Tag tag;
    bool sends;
    auto operator<=>(const Place&) const = default;
  };
  struct Posted {
    Operation operation = {};
    const Message* expected = nullptr;  // of a receive
    Bytes room = {};
  };

  void post_next() {
    const auto order = std::next(orders_.begin(), static_cast<long>(random_() % orders_.size()));
    const auto [peer, tag, sends] = order->first;
    const Message& message = *order->second.front();
    Posted& posted = posted_.emplace_back();
    if (sends) {
      transport_.post_send(posted.operation, peer, tag, message.bytes);
    } else {
      posted.expected = &message;
      const bool at_most = random_() % 2 == 0;
      posted.room.resize(message.bytes.size() + (at_most ? random_() % 100 : 0));
      at_most ? transport_.post_receive_at_most(posted.operation, peer, tag, posted.room)
              : transport_.post_receive(posted.operation, peer, tag, posted.room);
    }
    order->second.pop_front();
    if (order->second.empty()) {
      orders_.erase(order);
    }
  }

  void post_and_give_up() {
    Operation operation;
    Bytes bytes(64);
    const int peer = (transport_.rank() + 1 + static_cast<int>(random_() % (kPlayers - 1))) % kPlayers;
    if (random_() % 2 == 0) {
      transport_.post_receive(operation, peer, kReceiveOnly, bytes);
    } else {
      transport_.post_send(operation, peer, kSendOnly, bytes);
    }
    if (random_() % 2 == 0) {
      static_cast<void>(transport_.progress(std::chrono::microseconds(0)));
    }
    EXPECT_TRUE(transport_.cancel(operation));
  }

  void take(Posted& posted) {
    wait_for(transport_, posted.operation);
    if (posted.expected != nullptr) {
      posted.room.resize(posted.operation.bytes);
      if (posted.room != posted.expected->bytes) {
        throw Error(ErrorCode::internal, "a wrong message was taken");
      }
    }
  }

  Transport& transport_;
  std::mt19937_64 random_;
  std::vector<std::deque<Message>> all_;  // by rank
  std::map<Place, std::deque<const Message*>> orders_;
  std::deque<Posted> posted_;
};

void play_in(std::vector<Endpoint> world, std::uint64_t seed) {
  for (Endpoint& endpoint : world) {
    endpoint = transport::make_sealed(std::move(endpoint), published_key());
  }
  run_ranks(std::move(world), [seed](const Endpoint& endpoint) {
    try {
      Player(*endpoint, seed).play();
    } catch (const Error& error) {
      endpoint->abort(error);
      throw;
    }
  });
}

// Two worlds at once share the memory of keys, the pool of pages and the library of cryptography.
TEST(SealedSchedules, EveryOrderOfPostsDeliversEveryMessage) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::thread beside([&] { play_in(make_inproc_world(kPlayers), seed + 2 * round); });
    play_in(make_inproc_world(kPlayers), seed + 2 * round + 1);
    beside.join();
  }
}

TEST(SealedSchedules, SoDoesALinkThatHoldsMessagesUp) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (std::uint64_t round = 0; round < 5; ++round) {
    auto world = make_inproc_world(kPlayers);
    for (Endpoint& endpoint : world) {
      endpoint = make_throttled(std::move(endpoint), Link::parse("1Gbit/s,100us"));
    }
    play_in(std::move(world), seed + round);
  }
}

}  // namespace
}  // namespace gradwire::test
