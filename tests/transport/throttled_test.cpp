// Tests the emulated link. Times have no asserted upper bound; if timing matters, one thread plays all ranks and lets
// the clock advance by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "gradwire/emulation.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/exchange.hpp"

namespace gradwire::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::vector<std::shared_ptr<Transport>> throttled_world(int world_size, const std::string& link) {
  auto world = make_inproc_world(world_size);
  for (auto& endpoint : world) {
    endpoint = make_throttled(endpoint, Link::parse(link));
  }
  return world;
}

TEST(Link, ParsesAndPrints) {
  const Link link = Link::parse("1Gbit/s,50us");
  EXPECT_EQ(link.bytes_per_second, 125e6);
  EXPECT_EQ(link.latency, microseconds(50));
  EXPECT_EQ(link.to_string(), "1Gbit/s,50us");
  EXPECT_EQ(Link::parse("100Mbit/s").to_string(), "100Mbit/s");
  EXPECT_EQ(Link::parse("10MB/s").bytes_per_second, 1e7);
  EXPECT_EQ(Link::parse("2.5GB/s, 1ms").latency, milliseconds(1));
  EXPECT_EQ(Link::parse("unlimited,3us").to_string(), "unlimited,3us");
  for (const char* bad :
       {"", "1", "fast", "1Gbit/s,", "1Gbit/s,50", "1Gbit/s,50us,1", "-1Gbit/s", "0Gbit/s", ",50us"}) {
    try {
      (void)Link::parse(bad);
      ADD_FAILURE() << "\"" << bad << "\" was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("link \"" + std::string(bad) + "\""));
    }
  }
}

TEST(Throttled, SaysWhatItIs) {
  const auto world = throttled_world(1, "1Gbit/s,50us");
  EXPECT_EQ(world[0]->name(), "throttled(inproc)");
  const TransportCapabilities capabilities = world[0]->capabilities();
  EXPECT_EQ(capabilities.emulation, "emulated 1Gbit/s, latency 50us");
  EXPECT_FALSE(capabilities.native_all_reduce_f32 || capabilities.native_all_reduce_f64);
  EXPECT_FALSE(capabilities.checksum_by_default);
  EXPECT_EQ(throttled_world(1, "10Mbit/s")[0]->capabilities().emulation, "emulated 10Mbit/s");
  EXPECT_THROW((void)make_throttled(nullptr, {}), Error);
  EXPECT_THROW((void)make_throttled(make_inproc_world(1)[0], Link{.bytes_per_second = -1}), Error);
}

/// Sends `bytes` from rank 0 to 1; this thread drives both.
struct OneMessage {
  OneMessage(std::vector<std::shared_ptr<Transport>> endpoints, std::size_t bytes)
      : world(std::move(endpoints)), out(bytes, std::byte{5}), in(bytes) {}
  ~OneMessage() {
    world[0]->cancel(send);
    world[1]->cancel(receive);
  }
  void post_send() { world[0]->post_send(send, 1, 0, out); }
  void post_receive() { world[1]->post_receive(receive, 0, 0, in); }

  std::vector<std::shared_ptr<Transport>> world;
  Bytes out;
  Bytes in;
  Operation send;
  Operation receive;
};

TEST(Throttled, NothingArrivesBeforeItsTime) {
  OneMessage message(throttled_world(2, "1kB/s"), 600'000);  // takes ten minutes
  message.post_receive();
  message.post_send();
  EXPECT_FALSE(message.world[0]->progress(milliseconds(1)));
  EXPECT_FALSE(message.world[1]->progress(milliseconds(1)));
  EXPECT_TRUE(message.send.pending());
  EXPECT_TRUE(message.receive.pending());
  EXPECT_EQ(message.world[0]->counters().bytes_sent, 0U);
}

TEST(Throttled, LatencyDelaysTheReceiverOnly) {
  OneMessage message(throttled_world(2, "unlimited,10min"), 100);
  message.post_receive();
  message.post_send();
  EXPECT_TRUE(message.world[0]->progress(kNow));
  EXPECT_FALSE(message.world[1]->progress(milliseconds(1)));
  EXPECT_TRUE(message.receive.pending());
}

TEST(Throttled, WiresRunWhileNobodyLooksAndTimeIsSpentOnce) {
  // The message takes 20 ms on the wire. After 30 ms both ends are done at once; if the time was spent twice, it would
  // take 40.
  for (const bool late : {false, true}) {
    OneMessage message(throttled_world(2, "10MB/s"), 200'000);
    if (!late) {
      message.post_receive();
    }
    message.post_send();
    const auto posted = Clock::now();
    std::this_thread::sleep_until(posted + milliseconds(30));
    if (late) {  // the message has crossed the wire before it was asked for
      message.post_receive();
    }
    EXPECT_TRUE(message.world[1]->progress(kNow)) << "late: " << late;
    EXPECT_TRUE(message.world[0]->progress(kNow)) << "late: " << late;
    EXPECT_TRUE(message.in == message.out);
  }
}

TEST(Throttled, NeverFasterThanTheLink) {
  // Three messages of 200 kB go to each of two peers, at 40 MB/s: 30 ms out and 30 ms in.
  const auto world = throttled_world(3, "40MB/s,1ms");
  const auto start = Clock::now();
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Batch batch(*transport);
    for (Tag i = 0; i < 3; ++i) {
      for (int step = 1; step < 3; ++step) {
        const int to = (transport->rank() + step) % 3;
        const int from = (transport->rank() + 3 - step) % 3;
        batch.receive(from, i, pattern(from, transport->rank(), i, 200'000));
        batch.send(to, i, pattern(transport->rank(), to, i, 200'000));
      }
    }
    batch.wait();
    EXPECT_GE(Clock::now() - start, milliseconds(31));
  });
}

TEST(Throttled, IngressIsSharedByAllSenders) {
  // Two senders of 20 ms each share one receiver: their wires are free after 20 ms, the receiver's after 40.
  const auto world = throttled_world(3, "10MB/s");
  const auto start = Clock::now();
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Batch batch(*transport);
    if (transport->rank() == 0) {
      batch.receive(1, 0, Bytes(200'000));
      batch.receive(2, 0, Bytes(200'000));
    } else {
      batch.send(0, 0, Bytes(200'000));
    }
    batch.wait();
    EXPECT_GE(Clock::now() - start, transport->rank() == 0 ? milliseconds(40) : milliseconds(20));
  });
}

TEST(Throttled, TransportsOverOneLinkShareIt) {
  std::vector<EmulatedLink> links(2, EmulatedLink(Link::parse("10MB/s")));
  links[1] = EmulatedLink(Link::parse("10MB/s"));  // each rank has its own link
  std::vector<std::vector<std::shared_ptr<Transport>>> worlds{make_inproc_world(2), make_inproc_world(2)};
  for (auto& world : worlds) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      world[rank] = make_throttled(world[rank], links[rank]);
    }
  }
  EXPECT_EQ(worlds[0][0]->capabilities().emulation, "emulated 80Mbit/s");
  EXPECT_THROW((void)make_throttled(nullptr, links[0]), Error);
  const auto start = Clock::now();
  run_ranks(worlds[0], [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Batch first(*worlds[0][rank]);
    Batch second(*worlds[1][rank]);
    for (Batch* batch : {&first, &second}) {
      rank == 0 ? batch->send(1, 0, Bytes(200'000)) : batch->receive(0, 0, Bytes(200'000));
    }
    first.wait();
    second.wait();
    EXPECT_GE(Clock::now() - start, milliseconds(40));
  });
}

TEST(Throttled, EgressIsSharedByAllMessages) {
  const auto world = throttled_world(3, "10MB/s");
  const auto start = Clock::now();
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Batch batch(*transport);
    if (transport->rank() == 0) {
      batch.send(1, 0, Bytes(200'000));
      batch.send(2, 0, Bytes(200'000));
    } else {
      batch.receive(0, 0, Bytes(200'000));
    }
    batch.wait();
    EXPECT_GE(Clock::now() - start, transport->rank() == 1 ? milliseconds(20) : milliseconds(40));
  });
}

TEST(Throttled, CancelsWhatIsOnTheWire) {
  OneMessage message(throttled_world(2, "1kB/s"), 600'000);
  message.post_receive();
  message.post_send();
  message.world[1]->progress(kNow);
  EXPECT_TRUE(message.world[1]->cancel(message.receive));
  EXPECT_TRUE(message.world[0]->cancel(message.send));
  EXPECT_FALSE(message.world[0]->progress(std::chrono::seconds(30)));  // returns at once, as nothing is pending
}

}  // namespace
}  // namespace gradwire::test
