// Tests the sealed transport against somebody on the network who holds messages back, swaps them, or puts a frame in
// the place of another message; and over a transport that refuses messages for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hex_bytes.hpp"
#include "memory/process_pool.hpp"
#include "sealed_messages.hpp"
#include "table/mailbox.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "tests/support/ranks.hpp"
#include "transport/sealed_transport.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Tag kFrameTag = 8;
constexpr int kVictim = 1;
constexpr std::uint32_t kBatch = 4;  // messages under way at once
constexpr std::uint32_t kBatches = 3;

struct Attack {
  enum class Kind : std::uint8_t { none, hold_back, frame_instead };
  Kind kind = Kind::none;
  Tag tag = 0;                 // of the victim's messages that are attacked
  std::uint32_t at = 0;        // which of them
  std::uint32_t overtake = 1;  // hold_back: it comes behind so many later ones
};

// What an attacker between rank 0 and the others does with the messages of rank 0.
class OrderAttacker final : public ForwardingTransport {
 public:
  OrderAttacker(std::shared_ptr<Transport> inner, const Attack& attack)
      : ForwardingTransport(std::move(inner)), attack_(attack) {}

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    if (tag == kFrameTag && peer != kVictim) {
      frames_.emplace_back(data.begin(), data.end());
    }
    if (peer != kVictim || tag != attack_.tag || attack_.kind == Attack::Kind::none) {
      inner().post_send(operation, peer, tag, data);
      return;
    }
    const std::uint32_t number = count_++;
    if (number == attack_.at && attack_.kind == Attack::Kind::hold_back) {
      held_ = &operation;
      bytes_ = data;
      operation.state = Operation::State::pending;
      operation.handle = nullptr;
      return;
    }
    const bool replace = number == attack_.at && attack_.kind == Attack::Kind::frame_instead;
    inner().post_send(operation, peer, tag, replace ? std::span<const std::byte>(frames_.back()) : data);
    if (held_ != nullptr && number == attack_.at + attack_.overtake) {
      held_->state = Operation::State::idle;
      inner().post_send(*std::exchange(held_, nullptr), peer, tag, bytes_);
    }
  }

  bool cancel(Operation& operation) noexcept override {
    if (&operation == held_) {
      held_ = nullptr;
      operation.state = Operation::State::idle;
      return true;
    }
    return inner().cancel(operation);
  }

 private:
  Attack attack_;
  std::uint32_t count_ = 0;
  Operation* held_ = nullptr;
  std::span<const std::byte> bytes_;
  std::deque<std::vector<std::byte>> frames_;
};

std::vector<std::shared_ptr<Transport>> attacked_world(int ranks, const Attack& attack) {
  auto world = make_inproc_world(ranks);
  world[0] = std::make_shared<OrderAttacker>(world[0], attack);
  for (auto& endpoint : world) {
    endpoint = transport::make_sealed(endpoint, published_key());
  }
  return world;
}

// Has the size of a frame, so that an attacker may put one in its place.
std::vector<std::byte> numbered_message(int receiver, std::uint32_t number) {
  std::vector<std::byte> message(frame_of(0).size(), std::byte{1});
  std::memcpy(message.data() + 8, &receiver, sizeof receiver);
  std::memcpy(message.data() + 16, &number, sizeof number);
  return message;
}

// Operations and their buffers, which are given up together.
struct OrderedBatch {
  explicit OrderedBatch(Transport& over) : transport(over), operations(2 * kBatch + 1), bytes(operations.size()) {}
  ~OrderedBatch() {
    for (Operation& operation : operations) {
      transport.cancel(operation);
    }
  }
  OrderedBatch(const OrderedBatch&) = delete;
  OrderedBatch& operator=(const OrderedBatch&) = delete;

  Transport& transport;
  std::vector<Operation> operations;
  std::vector<std::vector<std::byte>> bytes;
};

void send_batch(Transport& transport, std::uint32_t batch) {
  OrderedBatch sends(transport);
  sends.bytes[2 * kBatch] = frame_of(batch);
  transport.post_send(sends.operations[2 * kBatch], 2, kFrameTag, sends.bytes[2 * kBatch]);
  for (std::uint32_t i = 0; i < 2 * kBatch; ++i) {
    const int receiver = 1 + static_cast<int>(i % 2);
    sends.bytes[i] = numbered_message(receiver, kBatch * batch + i / 2);
    transport.post_send(sends.operations[i], receiver, 0, sends.bytes[i]);
  }
  wait_for(transport, sends.operations);
}

void receive_batch(Transport& transport, std::uint32_t batch) {
  OrderedBatch receives(transport);
  const std::size_t size = frame_of(0).size();
  for (std::uint32_t i = 0; i < kBatch; ++i) {
    receives.bytes[i].resize(2 * size);
    if (i % 2 == 0) {
      transport.post_receive(receives.operations[i], 0, 0, std::span(receives.bytes[i]).first(size));
    } else {
      transport.post_receive_at_most(receives.operations[i], 0, 0, receives.bytes[i]);
    }
  }
  if (transport.rank() == 2) {
    receives.bytes[kBatch].resize(size);
    transport.post_receive(receives.operations[kBatch], 0, kFrameTag, receives.bytes[kBatch]);
  }
  wait_for(transport, receives.operations);
  for (std::uint32_t i = 0; i < kBatch; ++i) {
    receives.bytes[i].resize(size);
    if (receives.bytes[i] != numbered_message(transport.rank(), kBatch * batch + i)) {
      throw Error(ErrorCode::internal, "a wrong message was taken");
    }
  }
}

void run_batches(Transport& transport) {
  try {
    for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
      transport.rank() == 0 ? send_batch(transport, batch) : receive_batch(transport, batch);
    }
  } catch (const Error& error) {
    transport.abort(error);
    throw;
  }
}

// Takes messages whose payload says which head it belongs to.
void run_mailbox(const std::shared_ptr<Transport>& transport) {
  table::Mailbox mailbox(transport, {.rows = 100, .width = 8});
  std::uint32_t taken = 0;
  const auto take = [&](int /*peer*/, const table::TableMessage& message) {
    if (message.head.number != taken || message.payload.size() != 64 ||
        message.payload[9] != static_cast<std::byte>(taken)) {
      throw Error(ErrorCode::internal, "a wrong message was taken");
    }
    ++taken;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  try {
    for (std::uint32_t i = 0; transport->rank() == 0 && i < kBatch; ++i) {
      table::TableMessage message;
      message.head.number = i;
      message.payload.resize(64, static_cast<std::byte>(i));
      mailbox.send(kVictim, std::move(message));
    }
    mailbox.post_waiting(1U << 20U);
    while (transport->rank() == 0 ? mailbox.completed_messages() < kBatch : taken < kBatch) {
      mailbox.progress(std::chrono::milliseconds(1), take);
      if (std::chrono::steady_clock::now() > end) {
        throw Error(ErrorCode::timeout, "the test waited 20 s");
      }
    }
  } catch (const Error& error) {
    transport->abort(error);
    throw;
  }
}

void expect_refusal(const std::vector<std::exception_ptr>& errors) {
  const std::string text = told(errors[kVictim]);
  EXPECT_THAT(text, AllOf(HasSubstr("corrupt"), HasSubstr("rank 0"))) << text;
}

TEST(SealedOrder, MessagesOfOneTagComeInTheirOrderOrNotAtAll) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (std::uint32_t round = 0; round < 40; ++round) {
    const std::uint32_t overtake = 1 + static_cast<std::uint32_t>(random() % (kBatch - 1));
    const std::uint32_t place = static_cast<std::uint32_t>(random() % (kBatch - overtake));
    const Attack attack{.kind = Attack::Kind::hold_back, .at = round % kBatches * kBatch + place, .overtake = overtake};
    SCOPED_TRACE("message " + std::to_string(attack.at) + " behind " + std::to_string(overtake));
    expect_refusal(run_ranks_catching(attacked_world(3, attack),
                                      [](const std::shared_ptr<Transport>& endpoint) { run_batches(*endpoint); }));
  }
}

TEST(SealedOrder, AFrameForAnotherReceiverIsNoOtherMessage) {
  for (std::uint32_t at = 0; at < kBatches * kBatch; ++at) {
    SCOPED_TRACE("message " + std::to_string(at));
    const Attack attack{.kind = Attack::Kind::frame_instead, .at = at};
    expect_refusal(run_ranks_catching(attacked_world(3, attack),
                                      [](const std::shared_ptr<Transport>& endpoint) { run_batches(*endpoint); }));
  }
}

TEST(SealedOrder, MessagesOfTablesComeInTheirOrderOrNotAtAll) {
  for (const Tag tag : {0U, 1U}) {  // heads, payloads
    for (std::uint32_t at = 0; at + 1 < kBatch; ++at) {
      SCOPED_TRACE("message " + std::to_string(at) + " of tag " + std::to_string(tag));
      expect_refusal(
          run_ranks_catching(attacked_world(2, {.kind = Attack::Kind::hold_back, .tag = tag, .at = at}), run_mailbox));
    }
  }
}

TEST(SealedOrder, WithoutAnAttackAllMessagesCome) {
  run_ranks(attacked_world(3, {}), [](const std::shared_ptr<Transport>& endpoint) { run_batches(*endpoint); });
  run_ranks(attacked_world(2, {}), run_mailbox);
}

TEST(SealedOrder, ASealedTransportThatNobodyHasUsedLeavesNothingBehind) {
  run_ranks(make_inproc_world(3), [](const std::shared_ptr<Transport>& inner) {
    if (inner->rank() == 0) {
      static_cast<void>(transport::make_sealed(inner, published_key()));
    }
    run_batches(*transport::make_sealed(inner, published_key()));
  });
}

// The pool has the limit of memory, and leaves its pages out of core dumps and swap where the policy says so.
TEST(SealedOrder, MessagesOnTheWayLieInThePagePool) {
  const auto frames = [] {
    return memory::page_pool().statistics().uses[static_cast<std::size_t>(memory::MemoryUse::frames)].in_use;
  };
  const auto sealed = transport::make_sealed(make_inproc_world(2)[0], published_key());
  std::vector<std::byte> bytes(1U << 20U);
  Operation operation;
  const std::uint64_t before = frames();
  sealed->post_receive(operation, 1, 0, bytes);
  EXPECT_GE(frames(), before + bytes.size());
  EXPECT_TRUE(sealed->cancel(operation));
  EXPECT_EQ(frames(), before);
}

// Throws once at one of its sends, and knows which receives have not been given up.
class RefusingTransport final : public ForwardingTransport {
 public:
  RefusingTransport(std::shared_ptr<Transport> inner, int refuse_at)
      : ForwardingTransport(std::move(inner)), refuse_at_(refuse_at) {}

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    if (sends_++ == refuse_at_) {
      throw Error(ErrorCode::out_of_memory, "no memory for a message");
    }
    inner().post_send(operation, peer, tag, data);
  }
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    inner().post_receive(operation, peer, tag, data);
    receives_.insert(&operation);
  }
  bool cancel(Operation& operation) noexcept override {
    receives_.erase(&operation);
    return inner().cancel(operation);
  }
  [[nodiscard]] std::size_t receives() const noexcept { return receives_.size(); }

 private:
  int refuse_at_;
  int sends_ = 0;
  std::set<Operation*> receives_;
};

TEST(SealedOrder, AnAgreementThatCannotBeginLeavesNoReceiveBehind) {
  const auto world = make_inproc_world(3);
  const auto inner = std::make_shared<RefusingTransport>(world[0], 1);
  {
    const auto sealed = transport::make_sealed(inner, published_key());
    Operation operation;
    std::vector<std::byte> bytes(8);
    EXPECT_EQ(error_of([&] { sealed->post_receive(operation, 1, 0, bytes); }).code(), ErrorCode::out_of_memory);
    EXPECT_EQ(inner->receives(), 2U);
    EXPECT_NO_THROW(sealed->post_receive(operation, 1, 0, bytes));
    EXPECT_EQ(inner->receives(), 3U) << "none is posted twice";
    EXPECT_TRUE(sealed->cancel(operation));
  }
  EXPECT_EQ(inner->receives(), 0U);
}

// Three sends wait for the keys; the inner transport refuses one of them when they are there.
TEST(SealedOrder, ASendThatWasRefusedIsMadeAgain) {
  for (int refused = 1; refused <= 3; ++refused) {  // send 0 is the greeting
    SCOPED_TRACE(refused);
    auto world = make_inproc_world(2);
    world[0] = std::make_shared<RefusingTransport>(world[0], refused);
    run_ranks(std::move(world), [](const std::shared_ptr<Transport>& inner) {
      const auto sealed = transport::make_sealed(inner, published_key());
      std::vector<Operation> operations(3);
      std::vector<std::vector<std::byte>> bytes(3, std::vector<std::byte>(96));
      int errors = 0;
      for (std::uint32_t i = 0; i < 3; ++i) {
        if (sealed->rank() == 0) {
          bytes[i] = numbered_message(1, i);
          sealed->post_send(operations[i], 1, 0, bytes[i]);
        } else {
          sealed->post_receive(operations[i], 0, 0, bytes[i]);
        }
      }
      for (int tries = 0; tries < 2; ++tries) {
        try {
          wait_for(*sealed, operations);
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
          ++errors;
        }
      }
      EXPECT_EQ(errors, sealed->rank() == 0 ? 1 : 0);
      for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(bytes[i], numbered_message(1, i));
      }
    });
  }
}

}  // namespace
}  // namespace gradwire::test
