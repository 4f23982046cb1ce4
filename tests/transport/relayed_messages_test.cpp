// Tests messages that a host thread sends for a stream, over ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "relay.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using transport::RelayedMessages;
using Path = RelayedMessages::Path;
using std::chrono::seconds;

// Reports the given capabilities; otherwise it is the transport below.
class Claims final : public ForwardingTransport {
 public:
  Claims(std::shared_ptr<Transport> inner, bool device_memory, bool any_thread = true)
      : ForwardingTransport(std::move(inner)), device_memory_(device_memory), any_thread_(any_thread) {}
  [[nodiscard]] TransportCapabilities capabilities() const override {
    TransportCapabilities capabilities = inner().capabilities();
    capabilities.device_memory = device_memory_;
    capabilities.any_thread = any_thread_;
    return capabilities;
  }

 private:
  bool device_memory_;
  bool any_thread_;
};

// A relay with its stream and the objects that the test inspects.
struct Relay {
  explicit Relay(std::shared_ptr<Transport> transport, Path path = Path::staged,
                 std::chrono::milliseconds timeout = seconds(20), ThreadPort::Number first = 0) {
    auto made = std::make_unique<ThreadPort>(first);
    port = made.get();
    messages = std::make_unique<RelayedMessages>(std::make_shared<Claims>(std::move(transport), true), std::move(made),
                                                 path, timeout);
  }
  ThreadPort* port = nullptr;
  std::unique_ptr<RelayedMessages> messages;
  ThreadStream stream;  // ends before the other members
};

// Mutations tried: the thread does not wait for the stream; the stream does not wait for the thread; copies are on the
// wrong side of a group.
TEST(RelayedMessages, BringTheBytesOfTheStreamToTheStream) {
  for (const int world : {1, 2, 3}) {
    for (const int directs : {0, 1, 3}) {  // ranks below that take the direct path
      run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
        const Path path = transport->rank() < directs ? Path::direct : Path::staged;
        Relay relay(transport, path);
        EXPECT_EQ(exchange_over_relay(*relay.messages, relay.stream, 14), "");
        EXPECT_TRUE(relay.port->entered);
        const bool staged = path == Path::staged && world > 1;
        EXPECT_EQ(relay.messages->pinned_bytes() > 0, staged);
        EXPECT_THAT(relay.messages->name(),
                    HasSubstr(path == Path::direct ? "from device memory" : "staged through pinned memory"));
      });
    }
  }
}

TEST(RelayedMessages, NumbersMayWrapAround) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Relay relay(transport, Path::staged, seconds(20), 0xFFFFFFF8U);
    EXPECT_EQ(exchange_over_relay(*relay.messages, relay.stream, 16), "");
  });
}

// Mutations tried: staging memory is not returned, or only at the end.
TEST(RelayedMessages, StagingMemoryIsUsedAgain) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Relay relay(transport);
    std::vector<std::byte> out(1000);
    std::vector<std::byte> in(1000);
    for (int group = 0; group < 50; ++group) {
      relay.messages->begin_group();
      relay.messages->send(out, 1 - transport->rank(), &relay.stream);
      relay.messages->receive(in, 1 - transport->rank(), &relay.stream);
      relay.messages->end_group();
      relay.stream.synchronize();
    }
    EXPECT_EQ(relay.messages->pinned_bytes(), 4000U);  // the last group's, whose copies may go on, and this one's
  });
}

// This is like two sessions of a process, whose groups the ranks begin in different orders.
TEST(RelayedMessages, TwoInOneProcessDoNotWaitForEachOther) {
  auto second = make_inproc_world(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const int self = transport->rank();
    Relay a(transport);
    Relay b(second[static_cast<std::size_t>(self)]);
    std::vector<std::byte> out(100, std::byte{5});
    std::vector<std::byte> in(200);
    Relay* first = self == 0 ? &a : &b;
    for (Relay* relay : {first, first == &a ? &b : &a}) {
      relay->messages->begin_group();
      relay->messages->send(out, 1 - self, &relay->stream);
      relay->messages->receive(std::span(in).subspan(relay == &a ? 0 : 100, 100), 1 - self, &relay->stream);
      relay->messages->end_group();
      if (relay == first) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    a.stream.synchronize();
    b.stream.synchronize();
    EXPECT_EQ(in, std::vector<std::byte>(200, std::byte{5}));
  });
}

TEST(RelayedMessages, ARankThatDoesNotComeIsNamedAndTheStreamGoesOn) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    if (transport->rank() == 1) {
      return;
    }
    Relay relay(transport, Path::staged, std::chrono::milliseconds(500));
    std::vector<std::byte> in(100);
    for (int group = 0; group < 2; ++group) {  // one is under way, and one waits behind it
      relay.messages->begin_group();
      relay.messages->receive(in, 1, &relay.stream);
      relay.messages->end_group();
    }
    relay.stream.synchronize();
    const Error error = error_of([&] { relay.messages->poll(); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("waiting for rank 1"));
    EXPECT_EQ(error_of([&] { relay.messages->begin_group(); }).code(), ErrorCode::timeout);
  });
}

// The wait ends whether the thread waits for the stream, or the stream for the thread.
TEST(RelayedMessages, AnAbortEndsTheWait) {
  for (const bool stream_is_there : {false, true}) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->rank() == 1) {
        return;
      }
      Relay relay(transport);
      std::promise<void> opens;
      std::vector<std::byte> in(100);
      relay.stream.push([&] { opens.get_future().wait(); });
      if (stream_is_there) {
        opens.set_value();
      }
      relay.messages->begin_group();
      relay.messages->receive(in, 1, &relay.stream);
      relay.messages->end_group();
      relay.messages->abort(Error(ErrorCode::aborted, "enough", ErrorCause::world));
      if (!stream_is_there) {
        opens.set_value();
      }
      relay.stream.synchronize();
      EXPECT_THAT(error_of([&] { relay.messages->poll(); }).what(), HasSubstr("enough"));
    });
  }
}

TEST(RelayedMessages, WhatIsNotPossibleIsAnError) {
  const auto world = make_inproc_world(1);
  const auto make = [&](bool device_memory, bool any_thread, Path path) {
    static_cast<void>(RelayedMessages(std::make_shared<Claims>(world[0], device_memory, any_thread),
                                      std::make_unique<ThreadPort>(), path, seconds(20)));
  };
  const Error bound = error_of([&] { make(true, false, Path::staged); });
  EXPECT_EQ(bound.code(), ErrorCode::unsupported);
  EXPECT_THAT(bound.what(), HasSubstr("MPI_THREAD_MULTIPLE"));
  EXPECT_THAT(error_of([&] { make(false, true, Path::direct); }).what(), HasSubstr("does not support device memory"));
  EXPECT_FALSE(world[0]->capabilities().device_memory);
  Relay relay(world[0]);
  float value = 0;
  EXPECT_THAT(error_of([&] { relay.messages->all_reduce(&value, DType::f32, 1, &relay.stream); }).what(),
              HasSubstr("deterministic = true"));
  std::byte byte{};
  relay.messages->begin_group();
  EXPECT_THAT(error_of([&] { relay.messages->send({&byte, 1}, 0, nullptr); }).what(), HasSubstr("captured"));
}

}  // namespace
}  // namespace gradwire::test
